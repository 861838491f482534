// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.updraft.proto.v1.Error;
import io.updraft.proto.v1.ErrorKind;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Tests of deterministic functions whose replies do not match requests one to one. */
@Timeout(120)
final class ReplayFromTheStartTest {
  private static final int ROWS = 100;
  private static final ReplyEvent WORKER_LOST =
      new ReplyEvent.Failed(
          Error.newBuilder().setKind(ErrorKind.ERROR_KIND_WORKER).setMessage("why").build());

  private enum Loss {
    WORKER(Behaviours::workerDies),
    POD(Behaviours::vanishes),
    DRAIN(Behaviours::drains);

    private final TestPool.Behaviour end;

    Loss(TestPool.Behaviour end) {
      this.end = end;
    }
  }

  private final ExchangeCore core =
      new ExchangeCore(
          ClientOptions.of(Peer.POOL, TestCall.newEndpoint()), Replay.FROM_THE_START, 0);

  private void begin() {
    assertTrue(core.begin(new TestCall(true)));
    core.opened(10, 0);
  }

  private void on(ReplyEvent event, long consumed) throws MalformedReplyException {
    core.onEvent(core.call(), event, consumed, 0, 0);
  }

  private void send(int batches) {
    for (int batch = 0; batch < batches; batch++) {
      core.admit(new RequestBatch(SingleBatch.unowned(ROWS), BatchGroups.NONE));
      assertNotNull(core.nextToSend());
    }
  }

  private static ReplyEvent.Batch result(long sequence) {
    return new ReplyEvent.Batch(sequence, SingleBatch.unowned(ROWS), new int[0], false);
  }

  @ParameterizedTest
  @EnumSource(Loss.class)
  void a_function_that_has_answered_nothing_begins_anew_on_another_worker(Loss loss)
      throws Exception {
    try (TestPool pool = TestPool.of(Behaviours.atWork(loss.end), Behaviours::echo);
        ExchangeFixture task =
            new ExchangeFixture(
                ClientOptions.of(Peer.POOL, pool.endpoint()), Replay.FROM_THE_START)) {
      assertEquals(List.of(1L, 2L, 3L), task.run(3, ROWS));
      assertEquals(2, pool.calls().size());
      assertEquals(1, task.exchange().replays());
    }
  }

  @Test
  void results_that_the_task_has_not_taken_are_dropped_and_every_batch_is_sent_again()
      throws Exception {
    begin();
    send(2);
    on(new ReplyEvent.Admitted(), 0);
    on(result(1), 2);
    on(WORKER_LOST, 2);
    assertNull(core.next());
    begin();
    assertNotNull(core.nextToSend());
    assertNotNull(core.nextToSend());
    assertNull(core.nextToSend());
    on(result(1), 1);
    assertEquals(1, core.next().reply().sequence());
  }

  @Test
  void once_the_task_has_a_result_the_exchange_fails_with_its_worker() throws Exception {
    begin();
    send(2);
    on(result(1), 1);
    on(result(2), 1);
    assertEquals(1, core.next().reply().sequence());
    on(WORKER_LOST, 2);
    // Replies that came before the failure are still delivered.
    assertEquals(2, core.next().reply().sequence());
    assertThrows(ExchangeException.class, core::next);
  }

  @Test
  void what_the_function_took_is_let_go_when_the_task_has_a_result() {
    RequestLog log = new RequestLog(4, 1_000, 4_000, Replay.FROM_THE_START);
    RequestBatch taken = new RequestBatch(SingleBatch.unowned(ROWS), BatchGroups.NONE);
    log.add(taken);
    log.consumedThrough(1);
    assertTrue(log.replayable());
    log.resultTaken();
    assertFalse(log.replayable());
    assertEquals(0, log.forgottenBytes());
    log.restart();
    assertTrue(log.hasRoom());
    log.close();
  }

  @Test
  void the_batch_that_was_taken_last_is_blamed_for_two_deaths() throws Exception {
    begin();
    send(3);
    on(new ReplyEvent.Credit(), 3);
    on(WORKER_LOST, 3);
    begin();
    while (core.nextToSend() != null) {
      // Send all batches again.
    }
    on(new ReplyEvent.Credit(), 3);
    on(WORKER_LOST, 3);
    String message = assertThrows(ExchangeException.class, core::next).getMessage();
    assertTrue(message.startsWith("batch 3 killed two workers"), message);
  }
}
