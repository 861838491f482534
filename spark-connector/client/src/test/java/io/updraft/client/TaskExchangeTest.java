// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.updraft.proto.v1.ErrorKind;
import io.updraft.proto.v1.ExchangeCommand;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.function.Consumer;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.Schema;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Helpers of a task whose function needs 15 ms for each batch, on a pool in this JVM. */
@Timeout(60)
final class TaskExchangeTest {
  private static final int ROWS = 10;
  private static final int BATCHES = 60;

  private final List<ExchangeCommand> commands = new CopyOnWriteArrayList<>();

  private void slow(PoolCall call) throws InterruptedException {
    FlightData opening = call.receive();
    commands.add(opening.command());
    call.admit();
    slowly(call, opening, Integer.MAX_VALUE);
  }

  private static void slowly(PoolCall call, FlightData opening, int answers)
      throws InterruptedException {
    call.sendSchema(opening.header());
    for (long sequence = 1; sequence <= answers; sequence++) {
      FlightData next = call.receive();
      if (next.request().hasFinish()) {
        call.finish();
        return;
      }
      Thread.sleep(15);
      call.sendBatch(sequence, sequence, next, Batches.rows(next.header()));
    }
  }

  /** Return a helper's behavior that answers this many batches, takes one more and then fails. */
  private TestPool.Behaviour failsAfter(int answers, ErrorKind kind) {
    return call -> {
      FlightData opening = call.receive();
      commands.add(opening.command());
      call.admit();
      slowly(call, opening, answers);
      call.receive();
      call.fail(kind, "as planned", answers + 1);
    };
  }

  private TestPool.Behaviour refuses(ErrorKind kind) {
    return call -> {
      commands.add(call.receive().command());
      call.fail(kind, "as planned", 0);
    };
  }

  /** Task of {@link #BATCHES} batches. */
  private static final class Task implements AutoCloseable {
    final RootAllocator root = new RootAllocator();
    final BufferAllocator allocator = root.newChildAllocator("task", 0, Long.MAX_VALUE);
    final TaskExchange exchange;
    final List<Long> answered = new ArrayList<>();
    private int sent;

    Task(TestPool pool, Replay replay) {
      this(pool, replay, o -> {});
    }

    Task(TestPool pool, Replay replay, Consumer<ClientOptions.Draft> change) {
      exchange =
          TaskExchange.open(
              ClientOptions.of(Peer.POOL, pool.endpoint()).changed(change),
              ExchangeFixture.COMMAND,
              Batches.SCHEMA,
              allocator,
              replay,
              List.of());
    }

    /** Run until the end; the answers are in {@link #answered}. */
    List<Long> run(int batches) throws InterruptedException {
      while (true) {
        while (sent < batches && exchange.hasRoom()) {
          sent++;
          exchange.send(
              Batches.counting(allocator, sent * 1_000_000L, ROWS), ROWS, BatchGroups.NONE);
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

    @Override
    public void close() {
      exchange.close();
      allocator.close();
      root.close();
    }
  }

  private static List<Long> numbers(int batches) {
    List<Long> numbers = new ArrayList<>();
    for (long number = 1; number <= batches; number++) {
      numbers.add(number);
    }
    return numbers;
  }

  @Test
  void helpers_share_the_batches_and_replies_come_in_order() throws Exception {
    try (TestPool pool = TestPool.of(this::slow);
        Task task = new Task(pool, Replay.REPLAY)) {
      assertEquals(numbers(BATCHES), task.run(BATCHES));
      assertTrue(task.exchange.helpers() > 0);
      // The test pool reports 7 ms for each worker.
      assertEquals(
          7 * (1 + task.exchange.helpers()), task.exchange.report().getTotalMilliseconds());
      assertFalse(commands.get(0).getIsHelper());
      assertTrue(commands.stream().skip(1).allMatch(ExchangeCommand::getIsHelper));
      assertEquals(0, task.exchange.replays());
    }
  }

  @ParameterizedTest
  @EnumSource(
      value = Replay.class,
      names = {"NEVER", "FROM_THE_START"})
  void functions_whose_batches_belong_to_one_worker_have_no_helpers(Replay replay)
      throws Exception {
    try (TestPool pool = TestPool.of(this::slow);
        Task task = new Task(pool, replay)) {
      assertEquals(numbers(20), task.run(20));
      assertEquals(1, pool.calls().size());
    }
  }

  @Test
  void helpers_can_be_turned_off() throws Exception {
    try (TestPool pool = TestPool.of(this::slow);
        Task task = new Task(pool, Replay.REPLAY, o -> o.maxHelpers = 0)) {
      assertEquals(numbers(20), task.run(20));
      assertEquals(1, pool.calls().size());
    }
  }

  @Test
  void a_busy_pool_is_asked_again_after_a_pause() throws Exception {
    try (TestPool pool =
            TestPool.of(this::slow, refuses(ErrorKind.ERROR_KIND_POOL_BUSY), this::slow);
        Task task = new Task(pool, Replay.REPLAY)) {
      assertEquals(numbers(BATCHES), task.run(BATCHES));
      assertTrue(task.exchange.helpers() > 0);
    }
  }

  @Test
  void a_pool_that_refuses_for_another_reason_is_not_asked_again() throws Exception {
    try (TestPool pool =
            TestPool.of(this::slow, refuses(ErrorKind.ERROR_KIND_PERMISSION_DENIED), this::slow);
        Task task = new Task(pool, Replay.REPLAY)) {
      assertEquals(numbers(BATCHES), task.run(BATCHES));
      assertEquals(2, commands.size());
      assertEquals(0, task.exchange.helpers());
    }
  }

  @Test
  void a_helper_that_gets_no_worker_in_time_is_cancelled() throws Exception {
    try (TestPool pool =
            TestPool.of(
                this::slow,
                call -> {
                  call.receiveEarly();
                  call.awaitCancelled();
                });
        Task task = new Task(pool, Replay.REPLAY)) {
      int batches = 120;
      assertEquals(numbers(batches), task.run(batches));
      assertTrue(pool.calls().get(1).awaitCancelled());
      assertEquals(0, task.exchange.helpers());
    }
  }

  @Test
  void batches_of_a_helper_that_lost_its_worker_move_to_another_one() throws Exception {
    try (TestPool pool =
            TestPool.of(this::slow, failsAfter(2, ErrorKind.ERROR_KIND_WORKER), this::slow);
        Task task = new Task(pool, Replay.REPLAY)) {
      assertEquals(numbers(BATCHES), task.run(BATCHES));
      assertEquals(1, task.exchange.replays());
      assertTrue(
          commands.stream().skip(2).anyMatch(command -> !command.getIsHelper()),
          "a replay has to wait for a worker as any exchange of its task does");
    }
  }

  @Test
  void an_error_in_a_helpers_batch_comes_after_the_replies_before_it() throws Exception {
    try (TestPool pool =
            TestPool.of(this::slow, failsAfter(1, ErrorKind.ERROR_KIND_USER), this::slow);
        Task task = new Task(pool, Replay.REPLAY)) {
      ExchangeException error = assertThrows(ExchangeException.class, () -> task.run(BATCHES));
      assertEquals(ErrorKind.ERROR_KIND_USER, error.kind());
      assertEquals(numbers(task.answered.size()), task.answered);
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
            Thread.sleep(15);
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
          Thread.sleep(50);
          call.fail(ErrorKind.ERROR_KIND_USER, "of the helper", 1);
        };
    try (TestPool pool = TestPool.of(failsWhileItsHelperWorks, failsLater);
        Task task = new Task(pool, Replay.REPLAY)) {
      ExchangeException error = assertThrows(ExchangeException.class, () -> task.run(BATCHES));
      assertEquals("of the helper", error.getMessage());
      assertEquals(numbers(task.answered.size()), task.answered);
    }
  }

  @Test
  void a_helper_whose_end_is_lost_after_its_last_reply_is_not_replaced() throws Exception {
    TestPool.Behaviour vanishesAtTheEnd =
        call -> {
          FlightData opening = call.receive();
          call.sendSchema(opening.header());
          for (long sequence = 1; ; sequence++) {
            FlightData next = call.receive();
            if (next.request().hasFinish()) {
              Behaviours.drains(call);
              return;
            }
            Thread.sleep(15);
            call.sendBatch(sequence, sequence, next, Batches.rows(next.header()));
          }
        };
    try (TestPool pool =
            TestPool.of(
                this::slow, vanishesAtTheEnd, refuses(ErrorKind.ERROR_KIND_PERMISSION_DENIED));
        Task task = new Task(pool, Replay.REPLAY)) {
      assertEquals(numbers(BATCHES), task.run(BATCHES));
      assertEquals(1, task.exchange.helpers());
      assertEquals(0, task.exchange.replays());
    }
  }

  @Test
  void helpers_leave_their_workers_while_the_task_waits_for_another_one() throws Exception {
    CountDownLatch left = new CountDownLatch(1);
    TestPool.Behaviour loses =
        call -> {
          FlightData opening = call.receive();
          call.admit();
          slowly(call, opening, 20);
          call.receive();
          Behaviours.workerDies(call);
        };
    TestPool.Behaviour helper =
        call -> {
          slow(call);
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
            slowly(call, opening, Integer.MAX_VALUE);
          }
        };
    try (TestPool pool = TestPool.of(loses, helper, waitsForTheHelper);
        Task task = new Task(pool, Replay.REPLAY)) {
      assertEquals(numbers(BATCHES), task.run(BATCHES));
      assertEquals(1, task.exchange.replays());
    }
  }

  @Test
  void a_token_file_that_cannot_be_read_now_only_delays_a_helper(@TempDir Path folder)
      throws Exception {
    Path token = Files.writeString(folder.resolve("token"), "secret");
    try (TestPool pool = TestPool.of(this::slow);
        Task task = new Task(pool, Replay.REPLAY, o -> o.tokenFile = token.toString())) {
      Files.delete(token);
      assertEquals(numbers(BATCHES), task.run(BATCHES));
      assertEquals(1, pool.calls().size());
    }
  }

  @Test
  void a_helper_that_fails_before_its_first_batch_does_not_fail_the_task() throws Exception {
    try (TestPool pool =
            TestPool.of(
                this::slow,
                call -> {
                  call.receive();
                  call.fail(ErrorKind.ERROR_KIND_FUNCTION_LOAD, "as planned", 0);
                },
                this::slow);
        Task task = new Task(pool, Replay.REPLAY)) {
      assertEquals(numbers(BATCHES), task.run(BATCHES));
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
            TestPool.of(this::slow, loadsLong, refuses(ErrorKind.ERROR_KIND_PERMISSION_DENIED));
        Task task = new Task(pool, Replay.REPLAY)) {
      assertEquals(numbers(BATCHES), task.run(BATCHES));
      loaded.await();
      assertEquals(List.of(true), silent);
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
    try (TestPool pool = TestPool.of(this::slow, differs, this::slow);
        Task task = new Task(pool, Replay.REPLAY)) {
      ExchangeException error = assertThrows(ExchangeException.class, () -> task.run(BATCHES));
      assertEquals(ErrorKind.ERROR_KIND_PROTOCOL, error.kind());
    }
  }

  @Test
  void a_helper_leaves_after_its_shift_and_another_one_follows() throws Exception {
    try (TestPool pool = TestPool.of(this::slow, this::slow, this::slow);
        Task task = new Task(pool, Replay.REPLAY)) {
      int batches = 900;
      assertEquals(numbers(batches), task.run(batches));
      assertTrue(
          task.exchange.helpers() > ClientOptions.of(Peer.POOL, pool.endpoint()).maxHelpers());
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
            Thread.sleep(1_200);
            if (sequence == 1) {
              call.sendSchema(opening.header());
            }
            call.sendBatch(sequence, sequence, next, Batches.rows(next.header()));
            next = call.receive();
          }
          call.finish();
        };
    try (TestPool pool = TestPool.of(slower);
        Task task = new Task(pool, Replay.REPLAY)) {
      assertEquals(numbers(8), task.run(8));
      assertTrue(task.exchange.helpers() > 0);
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
    try (TestPool pool = TestPool.of(this::slow, hangs);
        Task task = new Task(pool, Replay.REPLAY)) {
      Thread canceller =
          new Thread(
              () -> {
                try {
                  helped.await();
                } catch (InterruptedException e) {
                  return;
                }
                task.exchange.cancel("the task was killed");
              });
      canceller.start();
      ExchangeException error = assertThrows(ExchangeException.class, () -> task.run(BATCHES));
      assertTrue(error.getMessage().contains("the task was killed"));
      canceller.join();
      assertTrue(pool.calls().get(1).awaitCancelled());
    }
  }
}
