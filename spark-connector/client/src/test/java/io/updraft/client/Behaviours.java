// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.grpc.Metadata;
import io.grpc.Status;
import io.updraft.proto.v1.ErrorKind;
import io.updraft.proto.v1.ReplyMetadata;

/** Behaviors of test pools. */
final class Behaviours {
  private static final Metadata.Key<String> RETRY_AFTER =
      Metadata.Key.of("retry-after-ms", Metadata.ASCII_STRING_MARSHALLER);

  private Behaviours() {}

  /** Send every batch back. */
  static void echo(PoolCall call) throws InterruptedException {
    echo(call, call.receive());
  }

  /** Send every batch back after this opening message. */
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

  /** Send every message back. Return how many of them held only a part of a batch. */
  static int echoParts(PoolCall call) throws InterruptedException {
    call.sendSchema(call.receive().header());
    int parts = 0;
    long sequence = 0;
    for (FlightData next = call.receive(); !next.request().hasFinish(); next = call.receive()) {
      if (next.request().hasPart()) {
        parts++;
        ReplyMetadata metadata =
            ReplyMetadata.newBuilder().setPart(next.request().getPart()).build();
        call.send(FlightData.reply(metadata, next.header(), next.body()));
      } else {
        sequence++;
        call.sendBatch(sequence, sequence, next, Batches.rows(next.header()));
      }
    }
    call.finish();
    return parts;
  }

  /** Return a behavior that answers this many batches, takes one more and loses its worker. */
  static TestPool.Behaviour workerDiesAfter(int answered) {
    return call -> {
      echoSome(call, answered);
      call.receive();
      call.fail(ErrorKind.ERROR_KIND_WORKER, "the worker was killed by SIGKILL", answered + 1);
    };
  }

  /** Answer this many batches and no more. */
  static void echoSome(PoolCall call, int answered) throws InterruptedException {
    echoSome(call, call.receive(), answered);
  }

  /** Answer this many batches after this opening message. */
  static void echoSome(PoolCall call, FlightData opening, int answered)
      throws InterruptedException {
    call.sendSchema(opening.header());
    for (int sequence = 1; sequence <= answered; sequence++) {
      FlightData batch = call.receive();
      call.sendBatch(sequence, sequence, batch, Batches.rows(batch.header()));
    }
  }

  /** Return a behavior that answers this many batches, takes one more and runs {@code end}. */
  static TestPool.Behaviour afterAnswers(int answered, TestPool.Behaviour end) {
    return call -> {
      echoSome(call, answered);
      call.receive();
      end.run(call);
    };
  }

  /** Return a behavior that reads the command and runs {@code end}. */
  static TestPool.Behaviour afterTheOpening(TestPool.Behaviour end) {
    return call -> {
      call.receive();
      end.run(call);
    };
  }

  /**
   * Return a behavior that reports that the function took the first batch, then runs {@code end}.
   */
  static TestPool.Behaviour atWork(TestPool.Behaviour end) {
    return call -> {
      call.receive();
      call.receive();
      call.sendCredit(1);
      end.run(call);
    };
  }

  /** End the call with an in-band report that the worker is lost. */
  static void workerDies(PoolCall call) {
    call.fail(ErrorKind.ERROR_KIND_WORKER, "the worker was killed by SIGKILL", 0);
  }

  /** End the call because the pool is draining. */
  static void drains(PoolCall call) {
    call.fail(ErrorKind.ERROR_KIND_POOL_UNAVAILABLE, "the pool is draining", 0);
  }

  /** End the stream without a finish, as if the pod were gone. */
  static void vanishes(PoolCall call) {
    call.close(Status.OK, new Metadata());
  }

  /** Return the behavior of a full pool that asks for a retry after this many milliseconds. */
  static TestPool.Behaviour full(String retryAfter) {
    return call -> {
      Metadata trailers = new Metadata();
      trailers.put(RETRY_AFTER, retryAfter);
      call.close(Status.RESOURCE_EXHAUSTED.withDescription("the queue is full"), trailers);
    };
  }
}
