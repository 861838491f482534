// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import com.google.protobuf.MessageLite;
import io.grpc.Metadata;
import io.grpc.Status;
import io.updraft.proto.v1.ErrorKind;
import java.util.OptionalLong;
import java.util.concurrent.TimeUnit;

/**
 * What {@link ExchangeCore} and {@link FileCore} share: the calls that follow one another until the
 * outcome is known, and how long the task may wait for each. It never calls gRPC, waits, locks or
 * reads a clock; {@link CallShell} does.
 */
abstract class CallCore {
  /** What a core knows of a call. */
  interface Call {
    /** Whether it has reached the wire. */
    boolean connected();

    /** When it was made, as {@link System#nanoTime} counts. */
    long startedNanos();

    /** What is known of its endpoint. */
    Reach reach();

    /** What to tell when it could not connect, beside the reason; may be empty. */
    String explanation();

    /** Lets the peer send this many more messages. */
    void request(int messages);
  }

  /**
   * A message to send.
   *
   * @param metadata what it says
   * @param slice what it has of a batch, or null
   * @param last whether nothing follows
   */
  record Step<M extends MessageLite>(M metadata, BatchSlice slice, boolean last) {}

  /** A wait without a limit of its own ends after this time, and begins anew. */
  private static final long LONGEST_WAIT_NANOS = TimeUnit.SECONDS.toNanos(60);

  private final ClientOptions options;
  private final long openedNanos;

  private Phase phase = Phase.BACKING_OFF;
  private Call call;
  private Failure failure;

  /** Why the current call fails, as the peer said in-band. */
  private Failure inBand;

  /** When the next call begins; only while backing off. */
  private long againNanos;

  /** Why the next call needs another token than the last; null if it does not. */
  private Failure tokenRefusal;

  private long progressNanos;
  private boolean sendingFinished;

  CallCore(ClientOptions options, long nowNanos) {
    this.options = options;
    this.openedNanos = nowNanos;
    this.againNanos = nowNanos;
    this.progressNanos = nowNanos;
  }

  /** A new call has taken over: nothing that was known of the last one holds. */
  abstract void onBegun();

  /** What follows when the current call is lost. */
  abstract Recovery.Decision decide(Failure reason, OptionalLong hint, long nowNanos);

  final ClientOptions options() {
    return options;
  }

  final long openedNanos() {
    return openedNanos;
  }

  final Phase phase() {
    return phase;
  }

  /** The latest call; null before the first. */
  final Call call() {
    return call;
  }

  /** Whether a call is open. */
  final boolean isRunning() {
    return phase == Phase.RUNNING;
  }

  /** Whether this is the call that is open: whatever the others say comes too late. */
  final boolean isCurrent(Call from) {
    return from == call && phase == Phase.RUNNING;
  }

  final boolean isRecoveryDue(long nowNanos) {
    return phase == Phase.BACKING_OFF && againNanos - nowNanos <= 0;
  }

  /** Time until the deadline; zero when there is none. */
  final long remainingNanos(long nowNanos) {
    if (options.deadline().isZero()) {
      return 0;
    }
    return Math.max(1, untilDeadlineNanos(nowNanos));
  }

  private long untilDeadlineNanos(long nowNanos) {
    return options.deadline().toNanos() - (nowNanos - openedNanos);
  }

  /** The next call has no other token than the last: it is in vain if the peer refused that. */
  final void tokenUnchanged() {
    if (tokenRefusal != null) {
      fail(tokenRefusal);
    }
  }

  /** A new call takes over; false when the outcome is known. */
  final boolean begin(Call next) {
    if (phase != Phase.BACKING_OFF) {
      return false;
    }
    phase = phase.after(Phase.Event.BEGUN);
    call = next;
    inBand = null;
    tokenRefusal = null;
    onBegun();
    return true;
  }

  /** The task has handed over its last batch. Idempotent. */
  final void finishSending() {
    sendingFinished = true;
  }

  final boolean isSendingFinished() {
    return sendingFinished;
  }

  /** The peer has shown that it is at work. */
  final void progressed(long nowNanos) {
    progressNanos = nowNanos;
  }

  /** How long to wait until something has to be done or a timeout has passed. */
  final long restNanos(long waitingSinceNanos, long nowNanos) {
    return switch (phase) {
      case BACKING_OFF -> Math.max(1, againNanos - nowNanos);
      case RUNNING ->
          call.connected()
              ? untilLateNanos(waitingSinceNanos, nowNanos)
              : options.connectTimeout().toNanos() - (nowNanos - call.startedNanos());
      // Only this side has work left, and whoever does it wakes the task.
      case FINISHED, FAILED, CLOSED -> LONGEST_WAIT_NANOS;
    };
  }

  private long untilLateNanos(long waitingSinceNanos, long nowNanos) {
    if (options.replyTimeout().isZero()) {
      return LONGEST_WAIT_NANOS;
    }
    long idleNanos = nowNanos - Math.max(waitingSinceNanos, progressNanos);
    return options.replyTimeout().toNanos() - idleNanos;
  }

  /** A wait ended and nothing had come. */
  final void expire(long waitingSinceNanos, long nowNanos) {
    if (phase != Phase.RUNNING) {
      return;
    }
    if (!call.connected()) {
      lose(Failure.unconnected(options.endpoint()), OptionalLong.empty(), nowNanos);
    } else if (untilLateNanos(waitingSinceNanos, nowNanos) <= 0) {
      double seconds = options.replyTimeout().toMillis() / 1000.0;
      fail(
          Failure.deadline(
              "the %s at %s showed no progress for %s s (%s)"
                  .formatted(
                      options.peer().noun(),
                      options.endpoint(),
                      seconds,
                      options.peer().replyTimeoutSetting())));
    }
  }

  /**
   * Takes an error that was sent in-band. A full peer's call goes on to its status, which says when
   * to retry; any other call is lost at once.
   */
  final void takeError(Failure error, long nowNanos) {
    inBand = orLate(error, nowNanos);
    if (!error.isWithoutRoom()) {
      lose(inBand, OptionalLong.empty(), nowNanos);
    }
  }

  /** Whether the peer has said why the call fails: its status follows. */
  final boolean hasError() {
    return inBand != null;
  }

  /** Why the current call ended with this status. */
  final Failure reasonOf(Status status, long nowNanos) {
    return inBand != null ? inBand : orLate(Failure.ofStatus(status, options), nowNanos);
  }

  /** Both sides watch the deadline: whichever is first ends the call, with words of its own. */
  private Failure orLate(Failure said, long nowNanos) {
    boolean late =
        said.kind() == ErrorKind.ERROR_KIND_DEADLINE
            && !options.deadline().isZero()
            && untilDeadlineNanos(nowNanos) <= 0;
    return late ? Failure.late(options) : said;
  }

  /** A call broke the protocol, or cannot be read. */
  void onBroken(Call from, Failure broken) {
    if (isCurrent(from)) {
      fail(broken);
    }
  }

  /** A call ended with a status. */
  void onClosed(Call from, Status status, Metadata trailers, long nowNanos) {
    if (isCurrent(from)) {
      lose(reasonOf(status, nowNanos), Failure.retryAfterMilliseconds(trailers), nowNanos);
    }
  }

  /** The current call is lost: another one takes its place, or the outcome is a failure. */
  private void lose(Failure reason, OptionalLong hint, long nowNanos) {
    boolean unconnected = reason.origin() == Failure.Origin.CONNECTION && !call.connected();
    Failure told = unconnected ? reason.withMessage(reason.message() + call.explanation()) : reason;
    Recovery.Decision decision = decide(told, hint, nowNanos);
    if (decision instanceof Recovery.Decision.Again again) {
      phase = phase.after(Phase.Event.LOST);
      againNanos = nowNanos + again.pause().toNanos();
    } else if (decision instanceof Recovery.Decision.WithAnotherToken needed) {
      // The task's thread looks for one: this may be gRPC's event loop, which reads no files.
      phase = phase.after(Phase.Event.LOST);
      againNanos = nowNanos;
      tokenRefusal = needed.failure();
    } else if (decision instanceof Recovery.Decision.GiveUp last) {
      fail(last.failure());
    }
  }

  /** The peer has finished, and the counts of both sides agree. */
  final void finish() {
    phase = phase.after(Phase.Event.FINISHED);
  }

  /** Fails what has no outcome yet; the first reason stays. */
  void fail(Failure reason) {
    if (phase.isUndecided()) {
      failWith(reason);
    }
  }

  /** The outcome is this failure. */
  final void failWith(Failure reason) {
    phase = phase.after(Phase.Event.FAILED);
    failure = reason;
  }

  /** Why it failed; only in phase {@link Phase#FAILED}. */
  final ExchangeException failure() {
    return failure.toException();
  }

  /** Releases what is held; nothing is accepted any more. */
  void close() {
    phase = phase.after(Phase.Event.CLOSED);
  }
}
