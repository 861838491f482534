// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.Metadata;
import io.grpc.Status;
import io.updraft.proto.v1.Error;
import io.updraft.proto.v1.ErrorKind;
import io.updraft.proto.v1.Report;
import java.time.Duration;
import java.util.List;
import org.apache.arrow.vector.types.pojo.Schema;
import org.junit.jupiter.api.Test;

/** Tests of an exchange's core without a pool or a thread. Each test sets the time itself. */
final class ExchangeCoreTest {
  private static final int ROWS = 100;
  private static final int LARGE_ROWS = Admission.BYTES_BEFORE_ADMISSION;
  private static final TestCall CALL = new TestCall(true);

  private final ClientOptions options =
      ClientOptions.of(Peer.POOL, TestCall.newEndpoint())
          .changed(
              o -> {
                o.connectTimeout = Duration.ofNanos(1_000);
                o.replyTimeout = Duration.ofNanos(5_000);
                o.acquireTimeout = Duration.ofSeconds(10);
                o.windowBatches = 2;
              });

  private ExchangeCore begun(Replay replay, TestCall call) {
    ExchangeCore core = new ExchangeCore(options, replay, 0);
    assertTrue(core.isRecoveryDue(0));
    assertTrue(core.begin(call));
    return core;
  }

  private ExchangeCore opened(Replay replay) {
    ExchangeCore core = begun(replay, CALL);
    core.opened(10, 0);
    return core;
  }

  private static void admit(ExchangeCore core, int rows) {
    core.admit(new RequestBatch(SingleBatch.unowned(rows), BatchGroups.NONE));
  }

  private static void on(ExchangeCore core, ReplyEvent event) throws MalformedReplyException {
    core.onEvent(core.call(), event, 0, 0, 0);
  }

  private static ReplyEvent.Batch answer(long sequence) {
    return new ReplyEvent.Batch(sequence, SingleBatch.unowned(ROWS), new int[0], false);
  }

  private static ReplyEvent failed(ErrorKind kind) {
    return new ReplyEvent.Failed(Error.newBuilder().setKind(kind).setMessage("why").build());
  }

  private static ErrorKind kindOf(ExchangeCore core) {
    return assertThrows(ExchangeException.class, core::next).kind();
  }

  @Test
  void a_call_may_return_to_a_pod_that_was_full_or_lost_its_worker() throws Exception {
    ExchangeCore full = opened(Replay.REPLAY);
    on(full, failed(ErrorKind.ERROR_KIND_POOL_FULL));
    full.onClosed(full.call(), Status.RESOURCE_EXHAUSTED, new Metadata(), 0);
    assertEquals(Replicas.Departure.LOST, full.departure());
    ExchangeCore lost = opened(Replay.REPLAY);
    on(lost, failed(ErrorKind.ERROR_KIND_WORKER));
    assertEquals(Replicas.Departure.LOST, lost.departure());
    ExchangeCore broken = opened(Replay.REPLAY);
    broken.onClosed(CALL, Status.CANCELLED, new Metadata(), 0);
    assertEquals(Replicas.Departure.LOST, broken.departure());
  }

  @Test
  void two_busy_pods_are_left_at_once_and_the_third_one_keeps_the_call() throws Exception {
    ExchangeCore core = begun(Replay.REPLAY, new TestCall(true, true));
    for (int busy = 0; busy < 2; busy++) {
      assertTrue(core.isRefusable());
      on(core, failed(ErrorKind.ERROR_KIND_POOL_BUSY));
      core.onClosed(core.call(), Status.RESOURCE_EXHAUSTED, new Metadata(), 0);
      assertEquals(Replicas.Departure.BUSY, core.departure());
      assertTrue(core.isRecoveryDue(0));
      assertTrue(core.begin(new TestCall(true, true)));
    }
    assertFalse(core.isRefusable());
    on(core, failed(ErrorKind.ERROR_KIND_POOL_BUSY));
    core.onClosed(core.call(), Status.RESOURCE_EXHAUSTED, new Metadata(), 0);
    assertFalse(core.isRecoveryDue(0), "a pool that refuses all the same is not asked without end");
  }

  @Test
  void a_full_pool_is_asked_again_after_a_pause() throws Exception {
    ExchangeCore core = begun(Replay.REPLAY, new TestCall(true, true));
    on(core, failed(ErrorKind.ERROR_KIND_POOL_FULL));
    core.onClosed(core.call(), Status.RESOURCE_EXHAUSTED, new Metadata(), 0);
    assertEquals(Replicas.Departure.LOST, core.departure());
    assertFalse(core.isRecoveryDue(0));
  }

  private static final Schema NO_COLUMNS = new Schema(List.of());

  private ExchangeCore answeredOnce(ExchangeCore core, boolean hasAccumulators) throws Exception {
    on(core, new ReplyEvent.Admitted());
    admit(core, ROWS);
    assertNotNull(core.nextToSend());
    core.onEvent(core.call(), new ReplyEvent.SchemaKnown(NO_COLUMNS, hasAccumulators), 1, 0, 0);
    core.onEvent(core.call(), answer(1), 1, 0, 0);
    return core;
  }

  private static void loseWorker(ExchangeCore core) throws MalformedReplyException {
    core.onEvent(core.call(), failed(ErrorKind.ERROR_KIND_WORKER), 1, 0, 0);
    core.onClosed(core.call(), Status.ABORTED, new Metadata(), 0);
  }

  @Test
  void a_lost_worker_that_has_answered_with_accumulators_fails_the_exchange() throws Exception {
    ExchangeCore without = answeredOnce(opened(Replay.REPLAY), false);
    loseWorker(without);
    assertTrue(without.isRecoveryDue(0));
    ExchangeCore with = answeredOnce(opened(Replay.REPLAY), true);
    assertTrue(with.expectsUpdates());
    loseWorker(with);
    assertFalse(with.isRecoveryDue(0));
    assertEquals(1, with.next().reply().sequence());
    ExchangeException failure = assertThrows(ExchangeException.class, with::next);
    assertEquals(ErrorKind.ERROR_KIND_WORKER, failure.kind());
    assertTrue(
        failure.getMessage().contains("not replayed: the function has accumulators or a profiler"));
  }

  @Test
  void a_function_may_load_accumulators_after_its_first_batch() throws Exception {
    ExchangeCore core = answeredOnce(opened(Replay.REPLAY), false);
    admit(core, ROWS);
    assertNotNull(core.nextToSend());
    ReplyEvent second = new ReplyEvent.Batch(2, SingleBatch.unowned(ROWS), new int[0], true);
    core.onEvent(core.call(), second, 2, 0, 0);
    core.onEvent(core.call(), failed(ErrorKind.ERROR_KIND_WORKER), 2, 0, 0);
    core.onClosed(core.call(), Status.ABORTED, new Metadata(), 0);
    assertFalse(core.isRecoveryDue(0));
  }

  @Test
  void a_lost_worker_that_has_not_answered_is_replaced_even_with_accumulators() throws Exception {
    ExchangeCore core = opened(Replay.REPLAY);
    on(core, new ReplyEvent.Admitted());
    admit(core, ROWS);
    assertNotNull(core.nextToSend());
    core.onEvent(core.call(), new ReplyEvent.SchemaKnown(NO_COLUMNS, true), 1, 0, 0);
    loseWorker(core);
    assertTrue(core.isRecoveryDue(0));
  }

  @Test
  void a_lost_helper_has_the_full_acquire_timeout_however_old_its_task_is() throws Exception {
    long now = Duration.ofHours(1).toNanos();
    ExchangeCore helper = new ExchangeCore(options, Replay.REPLAY, 0).newHelper(now);
    assertTrue(helper.callsAsHelper());
    assertTrue(helper.begin(CALL));
    helper.opened(10, now);
    helper.onEvent(CALL, new ReplyEvent.Admitted(), 0, 0, now);
    admit(helper, ROWS);
    assertNotNull(helper.nextToSend());
    helper.onEvent(CALL, failed(ErrorKind.ERROR_KIND_POOL_UNAVAILABLE), 0, 0, now);
    assertEquals(CallCore.Phase.BACKING_OFF, helper.phase());
    assertFalse(helper.callsAsHelper());
    helper.close();
  }

  @Test
  void a_call_does_not_return_to_a_pod_that_drains_or_was_not_reached() throws Exception {
    ExchangeCore drained = opened(Replay.REPLAY);
    on(drained, failed(ErrorKind.ERROR_KIND_POOL_UNAVAILABLE));
    assertEquals(Replicas.Departure.UNAVAILABLE, drained.departure());
    ExchangeCore unreached = begun(Replay.REPLAY, new TestCall(false));
    unreached.expire(0, 2_000);
    assertEquals(Replicas.Departure.UNAVAILABLE, unreached.departure());
  }

  @Test
  void a_large_batch_waits_for_admission_and_a_small_one_goes_ahead() throws Exception {
    ExchangeCore core = opened(Replay.REPLAY);
    admit(core, ROWS);
    admit(core, LARGE_ROWS);
    assertNotNull(core.nextToSend());
    assertNull(core.nextToSend());
    on(core, new ReplyEvent.Admitted());
    assertEquals(LARGE_ROWS, core.nextToSend().slice().batch().rows());
  }

  @Test
  void nothing_that_could_not_be_sent_again_goes_before_admission() throws Exception {
    ExchangeCore core = opened(Replay.NEVER);
    admit(core, ROWS);
    assertNull(core.nextToSend());
    on(core, new ReplyEvent.Admitted());
    assertNotNull(core.nextToSend());
  }

  @Test
  void an_admission_that_comes_before_the_call_is_open_counts_when_it_is() throws Exception {
    ExchangeCore core = begun(Replay.REPLAY, CALL);
    admit(core, LARGE_ROWS);
    on(core, new ReplyEvent.Admitted());
    assertNull(core.nextToSend());
    core.opened(10, 0);
    assertNotNull(core.nextToSend());
  }

  @Test
  void the_last_message_follows_the_last_batch_once() throws Exception {
    ExchangeCore core = opened(Replay.REPLAY);
    on(core, new ReplyEvent.Admitted());
    admit(core, ROWS);
    core.finishSending();
    assertNotNull(core.nextToSend().slice());
    assertNull(core.nextToSend().slice());
    assertNull(core.nextToSend());
  }

  @Test
  void room_is_told_once_and_only_to_who_found_none() throws Exception {
    ExchangeCore core = opened(Replay.REPLAY);
    assertTrue(core.hasRoom());
    admit(core, ROWS);
    admit(core, ROWS);
    assertFalse(core.hasRoom());
    assertNull(core.nextOrRoom());
    core.nextToSend();
    core.onEvent(CALL, new ReplyEvent.Credit(), 1, 0, 0);
    assertSame(ReplyQueue.ROOM, core.nextOrRoom());
    assertNull(core.nextOrRoom());
  }

  @Test
  void credit_for_what_the_call_has_not_sent_is_refused() throws Exception {
    ExchangeCore core = opened(Replay.REPLAY);
    on(core, new ReplyEvent.Admitted());
    admit(core, ROWS);
    core.nextToSend();
    on(core, answer(1));
    on(core, failed(ErrorKind.ERROR_KIND_WORKER));
    assertTrue(core.begin(CALL));
    core.opened(10, 0);
    admit(core, ROWS);
    core.nextToSend();
    core.onEvent(CALL, new ReplyEvent.Credit(), 1, 0, 0);
    ReplyEvent beyond = new ReplyEvent.Credit();
    String message =
        assertThrows(MalformedReplyException.class, () -> core.onEvent(CALL, beyond, 2, 0, 0))
            .getMessage();
    assertTrue(message.contains("batch 2 as consumed, but the task has sent 1"), message);
  }

  @Test
  void batches_that_were_not_answered_go_to_the_next_call() throws Exception {
    ExchangeCore core = opened(Replay.REPLAY);
    on(core, new ReplyEvent.Admitted());
    admit(core, ROWS);
    admit(core, ROWS);
    core.nextToSend();
    core.nextToSend();
    on(core, answer(1));
    assertEquals(1, core.next().reply().sequence());
    on(core, failed(ErrorKind.ERROR_KIND_WORKER));
    assertTrue(core.isRecoveryDue(0));
    TestCall second = new TestCall(true);
    assertTrue(core.begin(second));
    core.opened(10, 0);
    assertNotNull(core.nextToSend());
    assertNull(core.nextToSend());
    on(core, answer(1));
    assertEquals(2, core.next().reply().sequence());
  }

  @Test
  void what_a_lost_call_says_comes_too_late() throws Exception {
    ExchangeCore core = opened(Replay.REPLAY);
    core.onClosed(CALL, Status.UNAVAILABLE, new Metadata(), 0);
    assertFalse(core.isRunning());
    on(core, failed(ErrorKind.ERROR_KIND_USER));
    core.onBroken(CALL, Failure.malformed("late", null));
    assertNull(core.next());
  }

  @Test
  void a_connection_that_breaks_after_the_finish_takes_nothing_away() throws Exception {
    ExchangeCore core = opened(Replay.REPLAY);
    core.finishSending();
    core.nextToSend();
    on(core, new ReplyEvent.Finished(Report.getDefaultInstance()));
    assertNull(core.next());
    core.onClosed(CALL, Status.OK, new Metadata(), 0);
    assertSame(ReplyQueue.END, core.next());
    core.cancel("late");
    assertEquals(CallCore.Phase.FINISHED, core.phase());
  }

  @Test
  void a_finish_before_the_last_answer_is_malformed() {
    ExchangeCore core = opened(Replay.REPLAY);
    admit(core, ROWS);
    core.finishSending();
    assertThrows(
        MalformedReplyException.class,
        () -> on(core, new ReplyEvent.Finished(Report.getDefaultInstance())));
  }

  @Test
  void a_call_that_does_not_reach_the_wire_is_given_up_after_the_connect_timeout() {
    ExchangeCore core = begun(Replay.REPLAY, new TestCall(false));
    assertEquals(400, core.restNanos(500, 600));
    core.expire(500, 1_000);
    assertEquals(ErrorKind.ERROR_KIND_POOL_UNAVAILABLE, kindOf(core));
  }

  @Test
  void a_pool_is_silent_since_the_wait_began_or_since_it_last_spoke() throws Exception {
    ExchangeCore core = opened(Replay.REPLAY);
    assertEquals(4_000, core.restNanos(1_000, 2_000));
    core.onEvent(CALL, new ReplyEvent.Credit(), 0, 0, 3_000);
    assertEquals(4_000, core.restNanos(1_000, 4_000));
    core.expire(1_000, 7_999);
    assertTrue(core.isRunning());
    core.expire(1_000, 8_000);
    assertEquals(ErrorKind.ERROR_KIND_DEADLINE, kindOf(core));
  }

  @Test
  void a_deadline_is_told_in_the_same_words_whichever_side_sees_it_first() throws Exception {
    Status status = Status.DEADLINE_EXCEEDED.withDescription("Deadline Exceeded");
    assertTrue(isLate(core -> core.onClosed(CALL, status, new Metadata(), 500_000_000)));
    assertFalse(isLate(core -> core.onClosed(CALL, status, new Metadata(), 499_999_999)));
    ReplyEvent inBand = failed(ErrorKind.ERROR_KIND_DEADLINE);
    assertTrue(isLate(core -> core.onEvent(CALL, inBand, 0, 0, 500_000_000)));
    assertFalse(isLate(core -> core.onEvent(CALL, inBand, 0, 0, 499_999_999)));
  }

  private interface End {
    void of(ExchangeCore core) throws MalformedReplyException;
  }

  private boolean isLate(End end) throws MalformedReplyException {
    ClientOptions limited = options.changed(o -> o.deadline = Duration.ofMillis(500));
    ExchangeCore core = new ExchangeCore(limited, Replay.REPLAY, 0);
    assertTrue(core.begin(CALL));
    core.opened(10, 0);
    end.of(core);
    return assertThrows(ExchangeException.class, core::next)
        .getMessage()
        .endsWith("took longer than 0.5 s (spark.updraft.udf.deadline)");
  }

  @Test
  void a_lost_call_is_followed_by_another_after_a_pause() {
    ExchangeCore core = opened(Replay.REPLAY);
    Metadata trailers = new Metadata();
    trailers.put(Metadata.Key.of("retry-after-ms", Metadata.ASCII_STRING_MARSHALLER), "500");
    core.onClosed(CALL, Status.RESOURCE_EXHAUSTED, trailers, 0);
    assertFalse(core.isRecoveryDue(Duration.ofMillis(499).toNanos()));
    assertTrue(core.restNanos(0, 0) >= Duration.ofMillis(500).toNanos());
    assertTrue(core.isRecoveryDue(Duration.ofMillis(750).toNanos()));
  }

  @Test
  void what_was_closed_stays_closed() {
    ExchangeCore core = opened(Replay.REPLAY);
    core.close();
    core.onClosed(CALL, Status.UNAVAILABLE, new Metadata(), 0);
    assertFalse(core.begin(new TestCall(true)));
    core.cancel("late");
    assertEquals(CallCore.Phase.CLOSED, core.phase());
    assertThrows(IllegalStateException.class, core::next);
  }
}
