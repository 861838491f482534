// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.updraft.proto.v1.ErrorKind;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.Schema;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Failures of a task with helpers: what is repeated, and the order of errors. */
@Timeout(60)
final class HelperFailuresTest {
  private final SlowFunction function = new SlowFunction();

  @Test
  void batches_of_a_helper_that_lost_its_worker_move_to_another_one() throws Exception {
    try (TestPool pool =
            TestPool.of(
                function::serve,
                function.failsAfter(2, ErrorKind.ERROR_KIND_WORKER),
                function::serve);
        SlowTask task = new SlowTask(pool, Replay.REPLAY)) {
      assertEquals(SlowTask.numbers(SlowTask.BATCHES), task.run(SlowTask.BATCHES));
      assertEquals(1, task.exchange().replays());
      assertTrue(
          function.commands().stream().skip(2).anyMatch(command -> !command.getIsHelper()),
          "a replay has to wait for a worker as any exchange of its task does");
    }
  }

  @Test
  void an_error_in_a_helpers_batch_comes_after_the_replies_before_it() throws Exception {
    try (TestPool pool =
            TestPool.of(
                function::serve,
                function.failsAfter(1, ErrorKind.ERROR_KIND_USER),
                function::serve);
        SlowTask task = new SlowTask(pool, Replay.REPLAY)) {
      ExchangeException error =
          assertThrows(ExchangeException.class, () -> task.run(SlowTask.BATCHES));
      assertEquals(ErrorKind.ERROR_KIND_USER, error.kind());
      assertEquals(SlowTask.numbers(task.answered().size()), task.answered());
    }
  }

  @Test
  void an_error_of_the_main_exchange_comes_after_the_replies_of_helpers_before_it()
      throws Exception {
    CountDownLatch helperWorks = new CountDownLatch(1);
    CountDownLatch mainFailed = new CountDownLatch(1);
    TestPool.Behaviour failsWhileItsHelperWorks =
        call -> {
          FlightData opening = call.receive();
          call.sendSchema(opening.header());
          long sequence = 0;
          // Up to four batches were on their way before the helper's batch.
          for (int left = 5; left > 0; left -= helperWorks.getCount() == 0 ? 1 : 0) {
            FlightData next = call.receive();
            SlowFunction.compute();
            sequence++;
            call.sendBatch(sequence, sequence, next, Batches.rows(next.header()));
          }
          call.receive();
          call.fail(ErrorKind.ERROR_KIND_USER, "of the main exchange", sequence + 1);
          mainFailed.countDown();
        };
    TestPool.Behaviour failsLater =
        call -> {
          FlightData opening = call.receive();
          call.sendSchema(opening.header());
          call.receive();
          helperWorks.countDown();
          mainFailed.await();
          // The client has no event for this: give it time to notice the other failure.
          Thread.sleep(50);
          call.fail(ErrorKind.ERROR_KIND_USER, "of the helper", 1);
        };
    try (TestPool pool = TestPool.of(failsWhileItsHelperWorks, failsLater);
        SlowTask task = new SlowTask(pool, Replay.REPLAY)) {
      ExchangeException error =
          assertThrows(ExchangeException.class, () -> task.run(SlowTask.BATCHES));
      assertEquals("of the helper", error.getMessage());
      assertEquals(SlowTask.numbers(task.answered().size()), task.answered());
    }
  }

  /** Answer all batches and lose the worker before its report. */
  private static TestPool.Behaviour vanishesAtTheEnd(boolean hasAccumulators) {
    return call -> {
      FlightData opening = call.receive();
      call.sendSchema(opening.header(), hasAccumulators);
      for (long sequence = 1; ; sequence++) {
        FlightData next = call.receive();
        if (next.request().hasFinish()) {
          Behaviours.drains(call);
          return;
        }
        SlowFunction.compute();
        call.sendBatch(sequence, sequence, next, Batches.rows(next.header()));
      }
    };
  }

  @Test
  void a_helper_whose_end_is_lost_after_its_last_reply_is_not_replaced() throws Exception {
    try (TestPool pool =
            TestPool.of(
                function::serve,
                vanishesAtTheEnd(false),
                function.refuses(ErrorKind.ERROR_KIND_PERMISSION_DENIED));
        SlowTask task = new SlowTask(pool, Replay.REPLAY)) {
      assertEquals(SlowTask.numbers(SlowTask.BATCHES), task.run(SlowTask.BATCHES));
      assertEquals(1, task.exchange().helpers());
      assertEquals(0, task.exchange().replays());
    }
  }

  @Test
  void a_helper_that_ends_without_its_updates_of_accumulators_fails_the_task() throws Exception {
    try (TestPool pool = TestPool.of(function::serve, vanishesAtTheEnd(true));
        SlowTask task = new SlowTask(pool, Replay.REPLAY)) {
      ExchangeException error =
          assertThrows(ExchangeException.class, () -> task.run(SlowTask.BATCHES));
      assertTrue(
          error.getMessage().contains("the function has accumulators or a profiler"),
          error.getMessage());
    }
  }

  @Test
  void helpers_leave_their_workers_while_the_task_waits_for_another_one() throws Exception {
    CountDownLatch left = new CountDownLatch(1);
    TestPool.Behaviour loses =
        call -> {
          FlightData opening = call.receive();
          call.admit();
          SlowFunction.answer(call, opening, 20);
          call.receive();
          Behaviours.workerDies(call);
        };
    TestPool.Behaviour helper =
        call -> {
          function.serve(call);
          left.countDown();
        };
    TestPool.Behaviour waitsForTheHelper =
        call -> {
          FlightData opening = call.receive();
          if (opening.command().getIsHelper()) {
            call.fail(ErrorKind.ERROR_KIND_POOL_BUSY, "as planned", 0);
          } else {
            left.await();
            call.admit();
            SlowFunction.answer(call, opening, Integer.MAX_VALUE);
          }
        };
    try (TestPool pool = TestPool.of(loses, helper, waitsForTheHelper);
        SlowTask task = new SlowTask(pool, Replay.REPLAY)) {
      assertEquals(SlowTask.numbers(SlowTask.BATCHES), task.run(SlowTask.BATCHES));
      assertEquals(1, task.exchange().replays());
    }
  }

  @Test
  void a_token_file_that_cannot_be_read_now_only_delays_a_helper(@TempDir Path folder)
      throws Exception {
    Path token = Files.writeString(folder.resolve("token"), "secret");
    try (TestPool pool = TestPool.of(function::serve);
        SlowTask task = new SlowTask(pool, Replay.REPLAY, o -> o.tokenFile = token.toString())) {
      Files.delete(token);
      assertEquals(SlowTask.numbers(SlowTask.BATCHES), task.run(SlowTask.BATCHES));
      assertEquals(1, pool.calls().size());
    }
  }

  @Test
  void a_helper_that_fails_before_its_first_batch_does_not_fail_the_task() throws Exception {
    try (TestPool pool =
            TestPool.of(
                function::serve,
                call -> {
                  call.receive();
                  call.fail(ErrorKind.ERROR_KIND_FUNCTION_LOAD, "as planned", 0);
                },
                function::serve);
        SlowTask task = new SlowTask(pool, Replay.REPLAY)) {
      assertEquals(SlowTask.numbers(SlowTask.BATCHES), task.run(SlowTask.BATCHES));
    }
  }

  @Test
  void another_schema_from_a_helper_fails_the_task() throws Exception {
    TestPool.Behaviour differs =
        call -> {
          call.receive();
          call.sendSchema(
              Exchange.schemaHeader(
                  new Schema(List.of(Field.nullable("other", new ArrowType.Int(64, true))))));
          FlightData batch = call.receive();
          call.sendBatch(1, 1, batch, Batches.rows(batch.header()));
          call.receive();
        };
    try (TestPool pool = TestPool.of(function::serve, differs, function::serve);
        SlowTask task = new SlowTask(pool, Replay.REPLAY)) {
      ExchangeException error =
          assertThrows(ExchangeException.class, () -> task.run(SlowTask.BATCHES));
      assertEquals(ErrorKind.ERROR_KIND_PROTOCOL, error.kind());
    }
  }

  @Test
  void a_cancel_wakes_the_task_and_ends_every_helper() throws Exception {
    CountDownLatch helped = new CountDownLatch(1);
    TestPool.Behaviour hangs =
        call -> {
          call.receive();
          call.admit();
          call.receive();
          helped.countDown();
          call.awaitCancelled();
        };
    try (TestPool pool = TestPool.of(function::serve, hangs);
        SlowTask task = new SlowTask(pool, Replay.REPLAY)) {
      Thread canceller =
          new Thread(
              () -> {
                try {
                  helped.await();
                } catch (InterruptedException e) {
                  return;
                }
                task.exchange().cancel("the task was killed");
              });
      canceller.start();
      ExchangeException error =
          assertThrows(ExchangeException.class, () -> task.run(SlowTask.BATCHES));
      assertTrue(error.getMessage().contains("the task was killed"));
      canceller.join();
      assertTrue(pool.calls().get(1).awaitCancelled());
    }
  }
}
