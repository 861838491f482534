// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.updraft.proto.v1.ErrorKind;
import java.util.List;
import java.util.stream.LongStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

@Timeout(120)
final class ReplayTest {
  private static final int BATCHES = 40;

  private static final TestPool.Behaviour DIES_EARLY =
      Behaviours.afterTheOpening(Behaviours::workerDies);
  private static final TestPool.Behaviour DIES_AT_WORK = Behaviours.atWork(Behaviours::workerDies);
  private static final TestPool.Behaviour DRAINS_AT_WORK = Behaviours.atWork(Behaviours::drains);
  private static final TestPool.Behaviour POD_DIES = Behaviours.atWork(Behaviours::vanishes);

  private static List<Long> allNumbers() {
    return LongStream.rangeClosed(1, BATCHES).boxed().toList();
  }

  private static ExchangeFixture task(TestPool pool) {
    return new ExchangeFixture(ClientOptions.of(Peer.POOL, pool.endpoint()), Replay.REPLAY);
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1, 7, 39})
  void batches_of_a_killed_worker_are_answered_by_another(int answered) throws Exception {
    try (TestPool pool = TestPool.of(Behaviours.workerDiesAfter(answered), Behaviours::echo);
        ExchangeFixture task = task(pool)) {
      assertEquals(allNumbers(), task.run(BATCHES, 20_000));
      assertEquals(2, pool.calls().size());
      assertEquals(1, task.exchange().replays());
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1, 7, 39})
  void batches_of_pools_that_drain_are_answered_by_another_and_no_batch_is_blamed(int answered)
      throws Exception {
    try (TestPool pool =
            TestPool.of(
                Behaviours.afterAnswers(answered, Behaviours::drains),
                Behaviours.afterAnswers(0, Behaviours::drains),
                Behaviours::echo);
        ExchangeFixture task = task(pool)) {
      assertEquals(allNumbers(), task.run(BATCHES, 20_000));
      assertEquals(3, pool.calls().size());
    }
  }

  @Test
  void a_stream_that_ends_without_a_finish_is_replayed() throws Exception {
    TestPool.Behaviour vanishes =
        call -> {
          Behaviours.echoSome(call, 5);
          Behaviours.vanishes(call);
        };
    try (TestPool pool = TestPool.of(vanishes, Behaviours::echo);
        ExchangeFixture task = task(pool)) {
      assertEquals(allNumbers(), task.run(BATCHES, 20_000));
    }
  }

  @Test
  void an_exchange_that_makes_progress_outlives_many_workers() throws Exception {
    TestPool.Behaviour[] deaths = new TestPool.Behaviour[11];
    for (int i = 0; i < 10; i++) {
      deaths[i] = Behaviours.workerDiesAfter(3);
    }
    deaths[10] = Behaviours::echo;
    try (TestPool pool = TestPool.of(deaths);
        ExchangeFixture task = task(pool)) {
      assertEquals(allNumbers(), task.run(BATCHES, 100));
      assertEquals(11, pool.calls().size());
      assertEquals(10, task.exchange().replays());
    }
  }

  @Test
  void a_pool_that_is_asked_again_before_any_work_is_not_counted_as_a_replay() throws Exception {
    try (TestPool pool =
            TestPool.of(
                Behaviours.full("1"),
                Behaviours.workerDiesAfter(3),
                Behaviours.full("1"),
                Behaviours::echo);
        ExchangeFixture task = task(pool)) {
      assertEquals(allNumbers(), task.run(BATCHES, 100));
      assertEquals(4, pool.calls().size());
      assertEquals(1, task.exchange().replays());
    }
  }

  @Test
  void a_batch_that_kills_two_workers_fails_the_exchange_with_that_said() throws Exception {
    try (TestPool pool =
            TestPool.of(
                Behaviours.workerDiesAfter(5), Behaviours.workerDiesAfter(0), Behaviours::echo);
        ExchangeFixture task = task(pool)) {
      ExchangeException error = assertThrows(ExchangeException.class, () -> task.run(BATCHES, 100));
      assertEquals(ErrorKind.ERROR_KIND_WORKER, error.kind());
      assertTrue(error.getMessage().startsWith("batch 6 killed two workers"), error.getMessage());
      assertEquals(2, pool.calls().size());
    }
  }

  @Test
  void a_function_that_kills_two_workers_before_its_first_batch_fails_the_exchange()
      throws Exception {
    try (TestPool pool = TestPool.of(DIES_EARLY, DIES_EARLY, Behaviours::echo);
        ExchangeFixture task = task(pool)) {
      ExchangeException error = assertThrows(ExchangeException.class, () -> task.run(BATCHES, 100));
      assertTrue(
          error.getMessage().startsWith("the function killed two workers before its first batch"),
          error.getMessage());
      assertEquals(2, pool.calls().size());
    }
  }

  @Test
  void an_early_death_is_forgotten_once_a_batch_was_answered() throws Exception {
    try (TestPool pool =
            TestPool.of(DIES_EARLY, Behaviours.workerDiesAfter(3), DIES_EARLY, Behaviours::echo);
        ExchangeFixture task = task(pool)) {
      assertEquals(allNumbers(), task.run(BATCHES, 100));
    }
  }

  @Test
  void a_batch_that_takes_two_pods_with_it_fails_the_exchange() throws Exception {
    try (TestPool pool = TestPool.of(POD_DIES, POD_DIES, Behaviours::echo);
        ExchangeFixture task = task(pool)) {
      ExchangeException error = assertThrows(ExchangeException.class, () -> task.run(BATCHES, 100));
      assertTrue(
          error.getMessage().startsWith("batch 1 has probably killed two workers"),
          error.getMessage());
      assertEquals(2, pool.calls().size());
    }
  }

  @Test
  void a_batch_that_killed_a_worker_and_then_a_pod_fails_the_exchange() throws Exception {
    try (TestPool pool = TestPool.of(Behaviours.workerDiesAfter(0), POD_DIES, Behaviours::echo);
        ExchangeFixture task = task(pool)) {
      assertThrows(ExchangeException.class, () -> task.run(BATCHES, 100));
      assertEquals(2, pool.calls().size());
    }
  }

  @Test
  void pools_that_drain_blame_nobody() throws Exception {
    try (TestPool pool =
            TestPool.of(DRAINS_AT_WORK, DRAINS_AT_WORK, DRAINS_AT_WORK, Behaviours::echo);
        ExchangeFixture task = task(pool)) {
      assertEquals(allNumbers(), task.run(BATCHES, 100));
    }
  }

  @Test
  void a_batch_whose_credit_came_is_blamed_for_the_death_that_follows() throws Exception {
    try (TestPool pool = TestPool.of(DIES_AT_WORK, DIES_AT_WORK, Behaviours::echo);
        ExchangeFixture task = task(pool)) {
      ExchangeException error = assertThrows(ExchangeException.class, () -> task.run(BATCHES, 100));
      assertTrue(error.getMessage().startsWith("batch 1 killed two workers"), error.getMessage());
    }
  }

  @Test
  void connections_that_break_without_progress_are_given_up() throws Exception {
    try (TestPool pool = TestPool.of(Behaviours.afterTheOpening(Behaviours::vanishes));
        ExchangeFixture task =
            new ExchangeFixture(
                ClientOptions.of(Peer.POOL, pool.endpoint()).changed(o -> o.maxReplays = 2),
                Replay.REPLAY)) {
      ExchangeException error = assertThrows(ExchangeException.class, () -> task.run(BATCHES, 100));
      assertTrue(error.getMessage().contains("2 replays in a row"), error.getMessage());
      assertEquals(3, pool.calls().size());
    }
  }

  @Test
  void a_function_that_may_not_be_replayed_fails_with_its_worker() throws Exception {
    try (TestPool pool = TestPool.of(Behaviours.workerDiesAfter(3), Behaviours::echo);
        ExchangeFixture task =
            new ExchangeFixture(ClientOptions.of(Peer.POOL, pool.endpoint()), Replay.NEVER)) {
      ExchangeException error = assertThrows(ExchangeException.class, () -> task.run(BATCHES, 100));
      assertEquals(ErrorKind.ERROR_KIND_WORKER, error.kind());
      assertEquals("ABORTED", error.code());
      assertEquals(1, pool.calls().size());
    }
  }

  @Test
  void a_worker_that_answers_with_other_rows_breaks_the_protocol() throws Exception {
    TestPool.Behaviour shortens =
        call -> {
          Behaviours.echoSome(call, 1);
          call.receive();
          FlightData other = new FlightData(new byte[0], Batches.header(9), null, new byte[72]);
          call.sendBatch(2, 2, other, 9);
        };
    try (TestPool pool = TestPool.of(shortens);
        ExchangeFixture task = task(pool)) {
      ExchangeException error = assertThrows(ExchangeException.class, () -> task.run(BATCHES, 100));
      assertEquals(ErrorKind.ERROR_KIND_PROTOCOL, error.kind());
      assertTrue(
          error.getMessage().contains("batch 2, which has 100 rows, with 9"), error.getMessage());
    }
  }

  @Test
  void what_a_function_hoards_is_let_go_and_can_no_longer_be_replayed() {
    RequestLog log = new RequestLog(4, 1_000, 4_000, Replay.REPLAY);
    for (int number = 1; number <= 10; number++) {
      log.add(new RequestBatch(SingleBatch.unowned(60), BatchGroups.NONE));
      log.consumedThrough(number);
    }
    assertFalse(log.replayable());
    assertEquals(4_320, log.forgottenBytes());
    assertTrue(log.hasRoom());
    log.close();
  }

  /**
   * Check also that a lost call leaves nothing allocated, although its peer ended it without
   * reading.
   */
  @ParameterizedTest
  @ValueSource(longs = {1, 1 << 10, 1 << 20, 1 << 30})
  void a_window_of_any_size_is_replayed(long windowBytes) throws Exception {
    try (TestPool pool =
            TestPool.of(DIES_AT_WORK, Behaviours.workerDiesAfter(7), Behaviours::echo);
        ExchangeFixture task =
            new ExchangeFixture(
                ClientOptions.of(Peer.POOL, pool.endpoint())
                    .changed(
                        o -> {
                          o.windowBatches = BATCHES;
                          o.windowBytes = windowBytes;
                        }),
                Replay.REPLAY)) {
      assertEquals(allNumbers(), task.run(BATCHES, 20_000));
      assertEquals(3, pool.calls().size());
    }
  }

  @Test
  void a_batch_that_is_larger_than_what_is_kept_is_replayed_alone() {
    RequestLog log = new RequestLog(4, 100, 100, Replay.REPLAY);
    log.add(new RequestBatch(SingleBatch.unowned(60), BatchGroups.NONE));
    log.consumedThrough(1);
    assertTrue(log.replayable());
    log.add(new RequestBatch(SingleBatch.unowned(60), BatchGroups.NONE));
    log.consumedThrough(2);
    assertFalse(log.replayable());
    log.close();
  }

  @Test
  void a_function_that_takes_more_than_is_kept_fails_with_its_worker_and_the_setting()
      throws Exception {
    TestPool.Behaviour hoards =
        call -> {
          for (int message = 0; message <= 3; message++) {
            call.receive();
          }
          call.sendCredit(3);
          Behaviours.workerDies(call);
        };
    try (TestPool pool = TestPool.of(hoards, Behaviours::echo);
        ExchangeFixture task =
            new ExchangeFixture(
                ClientOptions.of(Peer.POOL, pool.endpoint()).changed(o -> o.replayBytes = 1_000),
                Replay.REPLAY)) {
      ExchangeException error = assertThrows(ExchangeException.class, () -> task.run(BATCHES, 100));
      assertTrue(
          error.getMessage().contains("taken 2400 bytes without answering")
              && error
                  .getMessage()
                  .contains(
                      "keeps at most 1000 (four times spark.updraft.udf.windowBytes, at least 64m)"),
          error.getMessage());
      assertEquals(1, pool.calls().size());
    }
  }
}
