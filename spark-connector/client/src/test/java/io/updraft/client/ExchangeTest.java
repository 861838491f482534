// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.Metadata;
import io.grpc.Status;
import io.updraft.proto.v1.ErrorKind;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.LongStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

@Timeout(120)
final class ExchangeTest {
  private static ClientOptions options(TestPool pool) {
    return ClientOptions.of(Peer.POOL, pool.endpoint());
  }

  private static List<Long> numbers(int count) {
    return LongStream.rangeClosed(1, count).boxed().toList();
  }

  private static ExchangeException failureOf(ExchangeFixture task) {
    return assertThrows(ExchangeException.class, () -> task.run(20, 100));
  }

  @ParameterizedTest
  @EnumSource(Replay.class)
  void every_batch_comes_back_once_and_in_order(Replay replay) throws Exception {
    try (TestPool pool = TestPool.of(Behaviours::echo);
        ExchangeFixture task = new ExchangeFixture(options(pool), replay)) {
      assertEquals(numbers(100), task.run(100, 20_000));
      assertEquals(Batches.SCHEMA, task.exchange().resultSchema());
      assertEquals(7, task.exchange().report().getTotalMilliseconds());
      assertTrue(task.exchange().bytesSent() > 100L * 20_000 * 8);
      assertTrue(task.exchange().bytesReceived() > 100L * 20_000 * 8);
    }
  }

  @Test
  void an_exchange_without_batches_ends() throws Exception {
    try (TestPool pool = TestPool.of(Behaviours::echo);
        ExchangeFixture task = new ExchangeFixture(options(pool), Replay.REPLAY)) {
      assertEquals(List.of(), task.run(0, 0));
      assertEquals(Reply.Kind.END, task.exchange().take().kind());
    }
  }

  @Test
  void the_window_holds_no_more_batches_than_it_says() throws Exception {
    CountDownLatch go = new CountDownLatch(1);
    TestPool.Behaviour late =
        call -> {
          go.await();
          Behaviours.echo(call);
        };
    try (TestPool pool = TestPool.of(late);
        ExchangeFixture task =
            new ExchangeFixture(options(pool).changed(o -> o.windowBatches = 3), Replay.NEVER)) {
      for (int i = 0; i < 3; i++) {
        assertTrue(task.exchange().hasRoom());
        task.send(10);
      }
      assertFalse(task.exchange().hasRoom());
      assertThrows(IllegalStateException.class, () -> task.send(10));
      go.countDown();
    }
  }

  @Test
  void the_window_counts_bytes_and_lets_a_larger_batch_go_alone() {
    RequestLog log = new RequestLog(4, 1_000, 4_000, Replay.NEVER);
    assertTrue(log.hasRoom());
    try (SingleBatch large = new SingleBatch(1_000)) {
      log.add(large.batch());
      assertFalse(log.hasRoom());
      log.consumedThrough(1);
      assertTrue(log.hasRoom());
    }
  }

  @Test
  void a_credit_without_a_reply_wakes_a_task_that_waits_for_room() throws Exception {
    TestPool.Behaviour readsAllFirst =
        call -> {
          FlightData opening = call.receive();
          List<FlightData> batches = new ArrayList<>();
          for (FlightData next = call.receive();
              !next.request().hasFinish();
              next = call.receive()) {
            batches.add(next);
            call.sendCredit(batches.size());
          }
          call.sendSchema(opening.header());
          long number = 0;
          for (FlightData batch : batches) {
            number++;
            call.sendBatch(number, batches.size(), batch, Batches.rows(batch.header()));
          }
          call.finish();
        };
    try (TestPool pool = TestPool.of(readsAllFirst);
        ExchangeFixture task =
            new ExchangeFixture(options(pool).changed(o -> o.windowBatches = 2), Replay.NEVER)) {
      assertEquals(numbers(30), task.run(30, 1_000));
    }
  }

  @Test
  void unread_replies_hold_the_pool_back() throws Exception {
    CountDownLatch allSent = new CountDownLatch(1);
    int replies = 64;
    TestPool.Behaviour floods =
        call -> {
          FlightData opening = call.receive();
          FlightData batch = call.receive();
          call.sendSchema(opening.header());
          for (int number = 1; number <= replies; number++) {
            call.sendBatch(number, 1, batch, Batches.rows(batch.header()));
          }
          allSent.countDown();
          call.receive();
          call.finish();
        };
    try (TestPool pool = TestPool.of(floods);
        ExchangeFixture task = new ExchangeFixture(options(pool), Replay.NEVER)) {
      task.exchange().send(Batches.counting(task.allocator(), 0, 100_000), 100_000);
      task.exchange().finishSending();
      assertTrue(allSent.await(60, TimeUnit.SECONDS));
      for (int number = 1; number <= replies; number++) {
        Reply reply = task.exchange().take();
        assertEquals(number, reply.sequence());
        reply.batch().close();
        assertTrue(task.allocator().getAllocatedMemory() <= 6L << 20);
      }
      assertEquals(Reply.Kind.END, task.exchange().take().kind());
    }
  }

  @Test
  void a_function_that_wants_no_more_ends_the_exchange_early() throws Exception {
    TestPool.Behaviour takesOne =
        call -> {
          FlightData opening = call.receive();
          FlightData batch = call.receive();
          call.sendSchema(opening.header());
          call.sendBatch(1, 1, batch, Batches.rows(batch.header()));
          call.finish();
        };
    try (TestPool pool = TestPool.of(takesOne);
        ExchangeFixture task = new ExchangeFixture(options(pool), Replay.NEVER)) {
      assertEquals(List.of(1L), task.run(50, 100));
      task.send(100);
    }
  }

  @Test
  void a_users_error_comes_with_what_the_pool_said_and_is_not_retried() throws Exception {
    TestPool.Behaviour raises =
        call -> {
          Behaviours.echoSome(call, 2);
          call.receive();
          call.fail(ErrorKind.ERROR_KIND_USER, "KeyError: 'x'", 3);
        };
    try (TestPool pool = TestPool.of(raises);
        ExchangeFixture task = new ExchangeFixture(options(pool), Replay.REPLAY)) {
      ExchangeException error = failureOf(task);
      assertEquals(ErrorKind.ERROR_KIND_USER, error.kind());
      assertEquals("UNKNOWN", error.code());
      assertEquals(3, error.details().orElseThrow().getSequence());
      assertEquals("KeyError: 'x'", error.getMessage());
      assertEquals(1, pool.calls().size());
      assertEquals(error.getMessage(), failureOf(task).getMessage());
    }
  }

  @Test
  void a_stream_that_ends_without_a_finish_is_a_failure() throws Exception {
    TestPool.Behaviour vanishes =
        call -> {
          Behaviours.echoSome(call, 2);
          call.close(Status.OK, new Metadata());
        };
    try (TestPool pool = TestPool.of(vanishes);
        ExchangeFixture task = new ExchangeFixture(options(pool), Replay.NEVER)) {
      ExchangeException error = failureOf(task);
      assertEquals(ErrorKind.ERROR_KIND_WORKER, error.kind());
      assertTrue(error.getMessage().contains("ended without a finish message"), error.getMessage());
    }
  }

  @Test
  void a_pool_that_is_killed_fails_an_exchange_that_may_not_be_replayed() throws Exception {
    TestPool[] killed = new TestPool[1];
    TestPool.Behaviour dies =
        call -> {
          Behaviours.echoSome(call, 2);
          killed[0].kill();
        };
    try (TestPool pool = TestPool.of(dies)) {
      killed[0] = pool;
      try (ExchangeFixture task = new ExchangeFixture(options(pool), Replay.NEVER)) {
        assertNotNull(failureOf(task).kind());
      }
    }
  }

  @Test
  void closing_midway_cancels_the_call() throws Exception {
    try (TestPool pool = TestPool.of(call -> Behaviours.echoSome(call, 1))) {
      ExchangeFixture task = new ExchangeFixture(options(pool), Replay.REPLAY);
      task.send(100_000);
      task.send(100_000);
      Reply reply = task.exchange().take();
      assertEquals(1, reply.sequence());
      reply.batch().close();
      task.close();
      assertTrue(pool.calls().get(0).awaitCancelled());
      task.exchange().close();
    }
  }

  @Test
  void closing_before_the_connection_is_made_releases_what_was_sent() {
    try (ExchangeFixture task =
        new ExchangeFixture(
            ClientOptions.of(Peer.POOL, Endpoint.parse("grpc://127.0.0.1:9")), Replay.REPLAY)) {
      task.send(100_000);
      assertTrue(task.exchange().hasRoom());
    }
  }

  @Test
  void unread_replies_are_released_by_close() throws Exception {
    CountDownLatch answered = new CountDownLatch(1);
    TestPool.Behaviour answers =
        call -> {
          Behaviours.echoSome(call, 3);
          answered.countDown();
          call.awaitCancelled();
        };
    try (TestPool pool = TestPool.of(answers);
        ExchangeFixture task = new ExchangeFixture(options(pool), Replay.NEVER)) {
      for (int i = 0; i < 3; i++) {
        task.send(50_000);
      }
      assertTrue(answered.await(60, TimeUnit.SECONDS));
      Reply first = task.exchange().take();
      assertEquals(1, ExchangeFixture.number(first));
    }
  }

  @Test
  void a_cancel_from_another_thread_wakes_the_task_with_its_reason() throws Exception {
    try (TestPool pool = TestPool.of(PoolCall::awaitCancelled);
        ExchangeFixture task = new ExchangeFixture(options(pool), Replay.REPLAY)) {
      task.send(10);
      Thread other = new Thread(() -> task.exchange().cancel("the query was stopped"));
      other.start();
      ExchangeException error = assertThrows(ExchangeException.class, () -> task.exchange().take());
      assertEquals("CANCELLED", error.code());
      assertTrue(error.getMessage().contains("the query was stopped"));
      assertThrows(ExchangeException.class, () -> task.send(10));
      other.join();
    }
  }

  @Test
  void an_interrupt_wakes_the_task() throws Exception {
    try (TestPool pool = TestPool.of(PoolCall::awaitCancelled);
        ExchangeFixture task = new ExchangeFixture(options(pool), Replay.REPLAY)) {
      task.send(10);
      Thread.currentThread().interrupt();
      assertThrows(InterruptedException.class, () -> task.exchange().take());
      assertNull(task.exchange().poll());
    }
  }

  @Test
  void a_pool_that_is_silent_for_too_long_fails_the_wait() throws Exception {
    try (TestPool pool = TestPool.of(PoolCall::awaitCancelled);
        ExchangeFixture task =
            new ExchangeFixture(
                options(pool).changed(o -> o.replyTimeout = java.time.Duration.ofMillis(200)),
                Replay.REPLAY)) {
      ExchangeException error = failureOf(task);
      assertEquals(ErrorKind.ERROR_KIND_DEADLINE, error.kind());
      assertTrue(error.getMessage().contains("no progress for 0.2 s"), error.getMessage());
    }
  }

  @Test
  void a_deadline_ends_the_exchange() throws Exception {
    try (TestPool pool = TestPool.of(PoolCall::awaitCancelled);
        ExchangeFixture task =
            new ExchangeFixture(
                options(pool).changed(o -> o.deadline = java.time.Duration.ofMillis(300)),
                Replay.REPLAY)) {
      assertEquals(ErrorKind.ERROR_KIND_DEADLINE, failureOf(task).kind());
    }
  }

  @Test
  void a_batch_larger_than_it_may_be_is_refused_before_it_is_sent() throws Exception {
    try (TestPool pool = TestPool.of(Behaviours::echo);
        ExchangeFixture task =
            new ExchangeFixture(
                options(pool).changed(o -> o.maxBatchBytes = 100_000), Replay.REPLAY)) {
      ExchangeException error = assertThrows(ExchangeException.class, () -> task.send(20_000));
      assertEquals(ErrorKind.ERROR_KIND_LIMIT, error.kind());
      assertTrue(error.getMessage().contains("the 100000 that can be sent"), error.getMessage());
    }
  }

  @Test
  void batches_larger_than_a_message_go_and_come_in_parts() throws Exception {
    AtomicInteger parts = new AtomicInteger();
    try (TestPool pool = TestPool.of(call -> parts.set(Behaviours.echoParts(call)));
        ExchangeFixture task =
            new ExchangeFixture(
                options(pool).changed(o -> o.maxMessageBytes = 100_000), Replay.REPLAY)) {
      assertEquals(List.of(1L, 2L, 3L), task.run(3, 40_000));
      assertTrue(parts.get() > 3, parts + " parts");
    }
  }

  @Test
  void a_batch_whose_parts_were_lost_midway_goes_again_as_a_whole() throws Exception {
    TestPool.Behaviour diesInside =
        call -> {
          FlightData opening = call.receive();
          call.sendSchema(opening.header());
          assertTrue(call.receive().request().hasPart());
          call.fail(ErrorKind.ERROR_KIND_WORKER, "the worker was killed by SIGKILL", 0);
        };
    try (TestPool pool = TestPool.of(diesInside, Behaviours::echoParts);
        ExchangeFixture task =
            new ExchangeFixture(
                options(pool).changed(o -> o.maxMessageBytes = 100_000), Replay.REPLAY)) {
      assertEquals(List.of(1L, 2L), task.run(2, 40_000));
    }
  }

  @Test
  void a_reply_larger_than_a_message_may_be_is_a_limit_error() throws Exception {
    TestPool.Behaviour blowsUp =
        call -> {
          FlightData opening = call.receive();
          call.sendSchema(opening.header());
          FlightData batch = call.receive();
          call.send(new FlightData(new byte[0], batch.header(), new byte[0], new byte[200_000]));
        };
    try (TestPool pool = TestPool.of(blowsUp);
        ExchangeFixture task =
            new ExchangeFixture(
                options(pool).changed(o -> o.maxMessageBytes = 100_000), Replay.REPLAY)) {
      assertEquals(ErrorKind.ERROR_KIND_LIMIT, failureOf(task).kind());
    }
  }

  @Test
  void headers_carry_token_tenant_and_trace() throws Exception {
    try (TestPool pool = TestPool.of(Behaviours::echo);
        ExchangeFixture task =
            new ExchangeFixture(
                options(pool)
                    .changed(
                        o -> {
                          o.token = "s3cret";
                          o.tenant = "team";
                          o.traceParent = "00-1-2-01";
                        }),
                Replay.REPLAY)) {
      task.run(1, 1);
      Metadata headers = pool.calls().get(0).headers();
      assertEquals("Bearer s3cret", header(headers, "authorization"));
      assertEquals("team", header(headers, "x-updraft-tenant"));
      assertEquals("00-1-2-01", header(headers, "traceparent"));
    }
  }

  private static String header(Metadata headers, String name) {
    return headers.get(Metadata.Key.of(name, Metadata.ASCII_STRING_MARSHALLER));
  }
}
