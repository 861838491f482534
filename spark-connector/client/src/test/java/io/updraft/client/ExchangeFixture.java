// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.updraft.proto.v1.ExchangeCommand;
import io.updraft.proto.v1.RegisteredFunction;
import java.util.ArrayList;
import java.util.List;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;

/** Task's side of an exchange. {@link #close} fails if the exchange has left a buffer allocated. */
final class ExchangeFixture implements AutoCloseable {
  static final ExchangeCommand COMMAND =
      ExchangeCommand.newBuilder()
          .setProtocolVersion(Exchange.PROTOCOL_VERSION)
          .setRegistered(RegisteredFunction.newBuilder().setName("echo"))
          .build();

  private final RootAllocator root = new RootAllocator();
  private final BufferAllocator allocator = root.newChildAllocator("task", 0, Long.MAX_VALUE);
  private final Exchange exchange;
  private long sent;

  ExchangeFixture(ClientOptions options, Replay replay) {
    this(options, replay, List.of());
  }

  ExchangeFixture(ClientOptions options, Replay replay, List<Artifact> artifacts) {
    this(options, COMMAND, replay, artifacts);
  }

  ExchangeFixture(ClientOptions options, ExchangeCommand command, Replay replay) {
    this(options, command, replay, List.of());
  }

  private ExchangeFixture(
      ClientOptions options, ExchangeCommand command, Replay replay, List<Artifact> artifacts) {
    this.exchange = Exchange.open(options, command, Batches.SCHEMA, allocator, replay, artifacts);
  }

  Exchange exchange() {
    return exchange;
  }

  BufferAllocator allocator() {
    return allocator;
  }

  /** Send the next batch. Its first value encodes its number. */
  void send(int rows) {
    sent++;
    exchange.send(Batches.counting(allocator, sent * 1_000_000, rows), rows);
  }

  /** Send this many batches and return the numbers of the batches that came back, in order. */
  List<Long> run(int batches, int rows) throws InterruptedException {
    List<Long> numbers = new ArrayList<>();
    boolean finished = false;
    while (true) {
      while (sent < batches && exchange.hasRoom()) {
        send(rows);
      }
      if (sent == batches && !finished) {
        exchange.finishSending();
        finished = true;
      }
      Reply reply = exchange.take();
      if (reply.kind() == Reply.Kind.END) {
        return numbers;
      }
      if (reply.kind() == Reply.Kind.BATCH) {
        numbers.add(number(reply));
      }
    }
  }

  /** Return the number of a reply's batch from its first value, which must match the sequence. */
  static long number(Reply reply) {
    try (var batch = reply.batch()) {
      long number = Batches.first(batch) / 1_000_000;
      if (number != reply.sequence()) {
        throw new AssertionError("reply " + reply.sequence() + " holds batch " + number);
      }
      return number;
    }
  }

  @Override
  public void close() {
    exchange.close();
    allocator.close();
    root.close();
  }
}
