// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.updraft.proto.v1.ErrorKind;
import io.updraft.proto.v1.ExchangeCommand;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Helpers of a task with a slow function: when they come, what they take and when they leave. */
@Timeout(60)
final class TaskExchangeTest {
  private final SlowFunction function = new SlowFunction();

  @Test
  void helpers_share_the_batches_and_replies_come_in_order() throws Exception {
    try (TestPool pool = TestPool.of(function::serve);
        SlowTask task = new SlowTask(pool, Replay.REPLAY)) {
      assertEquals(SlowTask.numbers(SlowTask.BATCHES), task.run(SlowTask.BATCHES));
      assertTrue(task.exchange().helpers() > 0);
      // The test pool reports 7 ms for each worker.
      assertEquals(
          7 * (1 + task.exchange().helpers()), task.exchange().report().getTotalMilliseconds());
      assertFalse(function.commands().get(0).getIsHelper());
      assertTrue(function.commands().stream().skip(1).allMatch(ExchangeCommand::getIsHelper));
      assertEquals(0, task.exchange().replays());
    }
  }

  @ParameterizedTest
  @EnumSource(
      value = Replay.class,
      names = {"NEVER", "FROM_THE_START"})
  void functions_whose_batches_belong_to_one_worker_have_no_helpers(Replay replay)
      throws Exception {
    try (TestPool pool = TestPool.of(function::serve);
        SlowTask task = new SlowTask(pool, replay)) {
      assertEquals(SlowTask.numbers(20), task.run(20));
      assertEquals(1, pool.calls().size());
    }
  }

  @Test
  void helpers_can_be_turned_off() throws Exception {
    try (TestPool pool = TestPool.of(function::serve);
        SlowTask task = new SlowTask(pool, Replay.REPLAY, o -> o.maxHelpers = 0)) {
      assertEquals(SlowTask.numbers(20), task.run(20));
      assertEquals(1, pool.calls().size());
    }
  }

  @Test
  void a_busy_pool_is_asked_again_after_a_pause() throws Exception {
    try (TestPool pool =
            TestPool.of(
                function::serve,
                function.refuses(ErrorKind.ERROR_KIND_POOL_BUSY),
                function::serve);
        SlowTask task = new SlowTask(pool, Replay.REPLAY)) {
      assertEquals(SlowTask.numbers(SlowTask.BATCHES), task.run(SlowTask.BATCHES));
      assertTrue(task.exchange().helpers() > 0);
    }
  }

  @Test
  void a_pool_that_refuses_for_another_reason_is_not_asked_again() throws Exception {
    try (TestPool pool =
            TestPool.of(
                function::serve,
                function.refuses(ErrorKind.ERROR_KIND_PERMISSION_DENIED),
                function::serve);
        SlowTask task = new SlowTask(pool, Replay.REPLAY)) {
      assertEquals(SlowTask.numbers(SlowTask.BATCHES), task.run(SlowTask.BATCHES));
      assertEquals(2, function.commands().size());
      assertEquals(0, task.exchange().helpers());
    }
  }

  @Test
  void a_helper_that_gets_no_worker_in_time_is_cancelled() throws Exception {
    try (TestPool pool =
            TestPool.of(
                function::serve,
                call -> {
                  call.receiveEarly();
                  call.awaitCancelled();
                });
        SlowTask task = new SlowTask(pool, Replay.REPLAY)) {
      int batches = 120;
      assertEquals(SlowTask.numbers(batches), task.run(batches));
      assertTrue(pool.calls().get(1).awaitCancelled());
      assertEquals(0, task.exchange().helpers());
    }
  }

  @Test
  void a_helper_takes_one_batch_until_its_function_is_loaded() throws Exception {
    CountDownLatch loaded = new CountDownLatch(1);
    List<Boolean> silent = new CopyOnWriteArrayList<>();
    TestPool.Behaviour loadsLong =
        call -> {
          FlightData opening = call.receive();
          call.sendSchema(opening.header());
          FlightData first = call.receive();
          silent.add(call.isSilent());
          loaded.countDown();
          call.sendBatch(1, 1, first, Batches.rows(first.header()));
          for (long sequence = 2; ; sequence++) {
            FlightData next = call.receive();
            if (next.request().hasFinish()) {
              call.finish();
              return;
            }
            call.sendBatch(sequence, sequence, next, Batches.rows(next.header()));
          }
        };
    try (TestPool pool =
            TestPool.of(
                function::serve,
                loadsLong,
                function.refuses(ErrorKind.ERROR_KIND_PERMISSION_DENIED));
        SlowTask task = new SlowTask(pool, Replay.REPLAY)) {
      assertEquals(SlowTask.numbers(SlowTask.BATCHES), task.run(SlowTask.BATCHES));
      loaded.await();
      assertEquals(List.of(true), silent);
    }
  }

  @Test
  void a_helper_leaves_after_its_shift_and_another_one_follows() throws Exception {
    try (TestPool pool = TestPool.of(function::serve, function::serve, function::serve);
        SlowTask task = new SlowTask(pool, Replay.REPLAY)) {
      int batches = 900;
      assertEquals(SlowTask.numbers(batches), task.run(batches));
      assertTrue(
          task.exchange().helpers() > ClientOptions.of(Peer.POOL, pool.endpoint()).maxHelpers());
    }
  }

  @Test
  void a_helper_works_even_if_one_batch_takes_longer_than_a_shift() throws Exception {
    TestPool.Behaviour slower =
        call -> {
          FlightData opening = call.receive();
          call.admit();
          // As a worker of a session, announce the schema only with the first reply.
          FlightData next = call.receive();
          for (long sequence = 1; !next.request().hasFinish(); sequence++) {
            // Longer than a shift.
            Thread.sleep(Helper.SHIFT_MILLISECONDS + 200);
            if (sequence == 1) {
              call.sendSchema(opening.header());
            }
            call.sendBatch(sequence, sequence, next, Batches.rows(next.header()));
            next = call.receive();
          }
          call.finish();
        };
    try (TestPool pool = TestPool.of(slower);
        SlowTask task = new SlowTask(pool, Replay.REPLAY)) {
      assertEquals(SlowTask.numbers(8), task.run(8));
      assertTrue(task.exchange().helpers() > 0);
    }
  }
}
