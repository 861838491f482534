// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.updraft.proto.v1.ErrorKind;

/** What test pools do. */
final class Behaviours {
  private Behaviours() {}

  /** Sends every batch back. */
  static void echo(PoolCall call) throws InterruptedException {
    echo(call, call.receive());
  }

  /** The same after the opening. */
  static void echo(PoolCall call, FlightData opening) throws InterruptedException {
    call.sendSchema(opening.header());
    long sequence = 0;
    for (FlightData next = call.receive(); next != null; next = call.receive()) {
      if (next.request().hasFinish()) {
        call.finish();
        return;
      }
      sequence++;
      call.sendBatch(sequence, sequence, next, Batches.rows(next.header()));
    }
  }

  /** Answers so many batches, then takes one more and loses its worker. */
  static TestPool.Behaviour workerDiesAfter(int answered) {
    return call -> {
      echoSome(call, answered);
      call.receive();
      call.fail(ErrorKind.ERROR_KIND_WORKER, "the worker was killed by SIGKILL", answered + 1);
    };
  }

  /** Answers so many batches and no more. */
  static void echoSome(PoolCall call, int answered) throws InterruptedException {
    echoSome(call, call.receive(), answered);
  }

  /** The same after the opening. */
  static void echoSome(PoolCall call, FlightData opening, int answered)
      throws InterruptedException {
    call.sendSchema(opening.header());
    for (int sequence = 1; sequence <= answered; sequence++) {
      FlightData batch = call.receive();
      call.sendBatch(sequence, sequence, batch, Batches.rows(batch.header()));
    }
  }
}
