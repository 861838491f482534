// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.Metadata;
import io.grpc.Status;
import io.updraft.proto.v1.Delivery;
import io.updraft.proto.v1.KeepAlive;
import io.updraft.proto.v1.Receipt;
import io.updraft.proto.v1.RequestMetadata;
import io.updraft.proto.v1.TaskIdentity;
import io.updraft.proto.v1.WriteCommand;
import io.updraft.proto.v1.WriteReplyMetadata;
import io.updraft.proto.v1.WriteRequestMetadata;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(120)
class KeepAliveTest {
  private static final int ROWS = 10;
  private static final int KEEPALIVES = 2;
  private static final int WRITERS_KEEPALIVES = 12;
  private static final long BETWEEN_THEM_MILLISECONDS = 250;

  private static ClientOptions options(TestPool pool) {
    return ClientOptions.of(Peer.POOL, pool.endpoint())
        .changed(o -> o.keepAlive = Duration.ofMillis(10));
  }

  @Test
  void a_task_with_nothing_to_send_says_that_it_is_there_until_it_has_finished() throws Exception {
    CountDownLatch heard = new CountDownLatch(1);
    CountDownLatch halfClosed = new CountDownLatch(1);
    TestPool.Behaviour listening =
        call -> {
          FlightData opening = call.receive();
          for (int i = 0; i < KEEPALIVES; i++) {
            FlightData message = call.receive();
            assertEquals(RequestMetadata.EventCase.KEEP_ALIVE, message.request().getEventCase());
            assertEquals(0, message.header().length + message.body().length);
          }
          heard.countDown();
          call.sendSchema(opening.header());
          FlightData batch = nextOf(call, RequestMetadata.EventCase.SEQUENCE);
          call.sendBatch(1, 1, batch, ROWS);
          nextOf(call, RequestMetadata.EventCase.FINISH);
          assertNull(call.receive(), "something came after finish");
          halfClosed.countDown();
          call.finish();
        };
    try (TestPool pool = TestPool.of(listening);
        ExchangeFixture task = new ExchangeFixture(options(pool), Replay.REPLAY)) {
      assertTrue(heard.await(60, TimeUnit.SECONDS));
      assertEquals(List.of(1L), task.run(1, ROWS));
      assertTrue(halfClosed.await(60, TimeUnit.SECONDS));
    }
  }

  private static FlightData nextOf(PoolCall call, RequestMetadata.EventCase event)
      throws InterruptedException {
    FlightData message = call.receive();
    while (message.request().hasKeepAlive()) {
      message = call.receive();
    }
    assertEquals(event, message.request().getEventCase());
    return message;
  }

  @Test
  void a_call_that_sends_often_enough_says_nothing_else() throws Exception {
    try (TestPool pool = TestPool.of(Behaviours::echo);
        ExchangeFixture task =
            new ExchangeFixture(
                options(pool).changed(o -> o.keepAlive = Duration.ofMinutes(5)), Replay.REPLAY)) {
      // The echo would treat a keepalive as a batch and fail.
      assertEquals(3, task.run(3, ROWS).size());
    }
  }

  @Test
  void a_file_waits_for_a_writer_as_long_as_that_says_that_it_is_there() throws Exception {
    CountDownLatch heard = new CountDownLatch(1);
    TestPool.Behaviour slow =
        call -> {
          call.receive();
          for (int i = 0; i < KEEPALIVES; i++) {
            assertTrue(WriteRequestMetadata.parseFrom(call.receive().appMetadata()).hasKeepAlive());
          }
          heard.countDown();
          while (!WriteRequestMetadata.parseFrom(call.receive().appMetadata()).hasFinish()) {
            // Skip keepalives.
          }
          for (int i = 0; i < WRITERS_KEEPALIVES; i++) {
            Thread.sleep(BETWEEN_THEM_MILLISECONDS);
            send(
                call, WriteReplyMetadata.newBuilder().setKeepAlive(KeepAlive.getDefaultInstance()));
          }
          send(call, WriteReplyMetadata.newBuilder().setReceipt(Receipt.getDefaultInstance()));
          call.close(Status.OK, new Metadata());
        };
    try (TestPool pool = TestPool.of(slow);
        BufferAllocator allocator = new RootAllocator();
        FileExchange file = open(pool, allocator)) {
      assertTrue(heard.await(60, TimeUnit.SECONDS));
      assertEquals(0, file.finish().getRows());
    }
  }

  private static void send(PoolCall call, WriteReplyMetadata.Builder reply) {
    byte[] nothing = {};
    call.sendBytes(new FlightData(nothing, nothing, reply.build().toByteArray(), nothing).encode());
  }

  private static FileExchange open(TestPool pool, BufferAllocator allocator) {
    // Shorter than the writer's total time, but longer than any of its silences.
    Duration replyTimeout = Duration.ofMillis(8 * BETWEEN_THEM_MILLISECONDS);
    return FileExchange.open(
        options(pool)
            .changed(
                o -> {
                  o.peer = Peer.WRITER;
                  o.replyTimeout = replyTimeout;
                }),
        WriteCommand.newBuilder().setDelivery(Delivery.DELIVERY_DIRECT).build(),
        Batches.SCHEMA,
        allocator,
        null);
  }

  @Test
  void keepalives_outlive_an_error_of_one_call() throws Exception {
    Semaphore heard = new Semaphore(0);
    TestPool.Behaviour listening =
        call -> {
          call.receive();
          while (call.receive() != null) {
            heard.release();
          }
        };
    CountDownLatch failed = new CountDownLatch(1);
    try (TestPool pool = TestPool.of(listening);
        RootAllocator root = new RootAllocator()) {
      ClientOptions options =
          ClientOptions.of(Peer.POOL, pool.endpoint())
              .changed(o -> o.keepAlive = Duration.ofMillis(10));
      try (ExchangeFixture task = new ExchangeFixture(options, Replay.NEVER)) {
        FlightCall bad =
            new FlightCall(
                options, new BearerToken(options), TaskIdentity.getDefaultInstance(), root, 0) {
              @Override
              void onReady(boolean first) {}

              @Override
              boolean onMessage(IncomingMessage message) {
                return true;
              }

              @Override
              void onBroken(Failure failure) {}

              @Override
              void onClosed(Status status, Metadata trailers) {}

              @Override
              RequestMetadata keepAlive() {
                failed.countDown();
                throw new OutOfMemoryError("as of Netty's direct memory");
              }
            };
        bad.start(ExchangeFixture.COMMAND.toByteString(), new byte[0], 1);
        failed.await();
        bad.close("it is broken");
        heard.drainPermits();
        heard.acquire(2);
        task.exchange().cancel("the test is over");
      }
    }
  }
}
