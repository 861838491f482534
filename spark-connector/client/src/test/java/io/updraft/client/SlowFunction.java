// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.updraft.proto.v1.ErrorKind;
import io.updraft.proto.v1.ExchangeCommand;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;

/** Function on a {@link TestPool} that computes for 15 ms for each batch. */
final class SlowFunction {
  private static final long COMPUTE_MILLISECONDS = 15;

  private final List<ExchangeCommand> commands = new CopyOnWriteArrayList<>();

  /** Return the commands of the calls so far. */
  List<ExchangeCommand> commands() {
    return commands;
  }

  /** Compute for one batch. */
  static void compute() throws InterruptedException {
    Thread.sleep(COMPUTE_MILLISECONDS);
  }

  /** Answer every batch. */
  void serve(PoolCall call) throws InterruptedException {
    FlightData opening = call.receive();
    commands.add(opening.command());
    call.admit();
    answer(call, opening, Integer.MAX_VALUE);
  }

  /** Answer this many batches after this opening message, or all. */
  static void answer(PoolCall call, FlightData opening, int answers) throws InterruptedException {
    call.sendSchema(opening.header());
    for (long sequence = 1; sequence <= answers; sequence++) {
      FlightData next = call.receive();
      if (next.request().hasFinish()) {
        call.finish();
        return;
      }
      compute();
      call.sendBatch(sequence, sequence, next, Batches.rows(next.header()));
    }
  }

  /** Return a behavior that answers this many batches, takes one more and then fails. */
  TestPool.Behaviour failsAfter(int answers, ErrorKind kind) {
    return call -> {
      FlightData opening = call.receive();
      commands.add(opening.command());
      call.admit();
      answer(call, opening, answers);
      call.receive();
      call.fail(kind, "as planned", answers + 1);
    };
  }

  /** Return a behavior that refuses the exchange. */
  TestPool.Behaviour refuses(ErrorKind kind) {
    return call -> {
      commands.add(call.receive().command());
      call.fail(kind, "as planned", 0);
    };
  }
}
