// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;
import java.util.stream.LongStream;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;

/** Task's side of a {@link TaskExchange}. {@link #close} fails if a buffer is left allocated. */
final class SlowTask implements AutoCloseable {
  /** Number of batches that is enough for several helpers. */
  static final int BATCHES = 60;

  private static final int ROWS = 10;

  private final RootAllocator root = new RootAllocator();
  private final BufferAllocator allocator = root.newChildAllocator("task", 0, Long.MAX_VALUE);
  private final List<Long> answered = new ArrayList<>();
  private final TaskExchange exchange;
  private int sent;

  SlowTask(TestPool pool, Replay replay) {
    this(pool, replay, o -> {});
  }

  SlowTask(TestPool pool, Replay replay, Consumer<ClientOptions.Draft> change) {
    Exchange main =
        Exchange.open(
            ClientOptions.of(Peer.POOL, pool.endpoint()).changed(change),
            ExchangeFixture.COMMAND,
            Batches.SCHEMA,
            allocator,
            replay,
            List.of());
    exchange = new TaskExchange(main, replay);
  }

  TaskExchange exchange() {
    return exchange;
  }

  /** Return the numbers of the batches that came back, in the order in which they came. */
  List<Long> answered() {
    return answered;
  }

  /** Send this many batches and return {@link #answered} after the end. */
  List<Long> run(int batches) throws InterruptedException {
    while (true) {
      while (sent < batches && exchange.hasRoom()) {
        sent++;
        exchange.send(Batches.counting(allocator, sent * 1_000_000L, ROWS), ROWS, BatchGroups.NONE);
      }
      if (sent == batches) {
        exchange.finishSending();
      }
      Reply reply = exchange.take();
      if (reply.kind() == Reply.Kind.BATCH) {
        answered.add(ExchangeFixture.number(reply));
      } else if (reply.kind() == Reply.Kind.END) {
        return answered;
      }
    }
  }

  /** Return the numbers from 1 to the number of batches. */
  static List<Long> numbers(int batches) {
    return LongStream.rangeClosed(1, batches).boxed().toList();
  }

  @Override
  public void close() {
    exchange.close();
    allocator.close();
    root.close();
  }
}
