// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import com.google.protobuf.MessageLite;
import io.grpc.Metadata;
import io.grpc.Status;
import io.updraft.proto.v1.ErrorKind;
import java.util.OptionalLong;
import java.util.concurrent.TimeUnit;

/**
 * Logic shared by {@link ExchangeCore} and {@link FileCore}: the sequence of calls until the
 * outcome is known, and how long the task may wait for each call. A core never calls gRPC, waits,
 * locks or reads a clock. {@link CallShell} does these things.
 */
abstract class CallCore {

  /** Phase of an exchange or a file, over all of its calls. */
  enum Phase {
    /** Waiting for the set time at which the next call begins. */
    BACKING_OFF,
    /** A call is open. */
    RUNNING,
    /** The peer has finished and the counts agree. */
    FINISHED,
    /** The failure is final. */
    FAILED,
    /** The task has closed the exchange or file. */
    CLOSED;

    /** Event that advances the phase. */
    enum Event {
      /** A new call has become the current call. */
      BEGUN,
      /** The call was lost, and another call may replace it. */
      LOST,
      /** The peer has sent its last message, and its counts match what this side sent. */
      FINISHED,
      /** An unrecoverable failure occurred. */
      FAILED,
      /** The task has closed the exchange or file. */
      CLOSED
    }

    /** Return the next phase; an event that comes too early or too late changes nothing. */
    Phase after(Event event) {
      return switch (event) {
        case BEGUN -> this == BACKING_OFF ? RUNNING : this;
        case LOST -> this == RUNNING ? BACKING_OFF : this;
        case FINISHED -> this == RUNNING ? FINISHED : this;
        // A file can fail after FINISHED, if the returned bytes cannot be stored.
        case FAILED -> this == CLOSED ? CLOSED : FAILED;
        case CLOSED -> CLOSED;
      };
    }

    /** Return whether the outcome is still open. */
    boolean isUndecided() {
      return this == BACKING_OFF || this == RUNNING;
    }
  }

  /** The part of a call that a core uses. */
  interface Call {
    /** Return whether the call has reached the wire. */
    boolean connected();

    /** Return the time at which the call was created, as a value of {@link System#nanoTime}. */
    long startedNanos();

    /** Return whether another pod may have a free worker if the call's pod has none. */
    boolean hasAlternatives();

    /** Return what is known about the call's endpoint. */
    Recovery.Reachability reach();

    /** Return text to append to the reason if the call could not connect; may be empty. */
    String explanation();

    /** Allow the peer to send this many more messages. */
    void request(int messages);
  }

  /**
   * Message to send.
   *
   * @param metadata the protocol's own message
   * @param slice the slice of a batch in the message, or null
   * @param last true if this is the last message
   */
  record Step<M extends MessageLite>(M metadata, BatchSlicer.Slice slice, boolean last) {}

  /**
   * Length of one wait if no timeout applies. After it, the task checks its condition and waits
   * again.
   */
  private static final long LONGEST_WAIT_NANOS = TimeUnit.SECONDS.toNanos(60);

  private final ClientOptions options;
  private final long openedNanos;

  private Phase phase = Phase.BACKING_OFF;
  private Call call;
  private Failure failure;

  /** Error that the peer reported in-band for the current call; null if it reported none. */
  private Failure inBand;

  /** Time at which the next call begins; meaningful only while backing off. */
  private long againNanos;

  /**
   * Failure of the last call if the peer refused its token; otherwise null. After a refusal, the
   * next call needs another token.
   */
  private Failure tokenRefusal;

  /** Reason why the last call was moved away from its pod. */
  private Replicas.Departure departure;

  private long progressNanos;
  private boolean sendingFinished;

  CallCore(ClientOptions options, long nowNanos) {
    this.options = options;
    this.openedNanos = nowNanos;
    this.againNanos = nowNanos;
    this.progressNanos = nowNanos;
  }

  /** Discard the state of the previous call, because a new call has replaced it. */
  abstract void onBegun();

  /** Decide what to do about the loss of the current call. */
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

  /** Return the latest call; null before the first. */
  final Call call() {
    return call;
  }

  /** Return whether a call is open. */
  final boolean isRunning() {
    return phase == Phase.RUNNING;
  }

  /** Return whether this is the open call. Messages of any other call must be ignored. */
  final boolean isCurrent(Call from) {
    return from == call && phase == Phase.RUNNING;
  }

  final boolean isRecoveryDue(long nowNanos) {
    return phase == Phase.BACKING_OFF && againNanos - nowNanos <= 0;
  }

  /** Return the time until the deadline; zero if there is none. */
  final long remainingNanos(long nowNanos) {
    if (options.deadline().isZero()) {
      return 0;
    }
    return Math.max(1, untilDeadlineNanos(nowNanos));
  }

  private long untilDeadlineNanos(long nowNanos) {
    return options.deadline().toNanos() - (nowNanos - openedNanos);
  }

  /** Handle a token that has not changed since the last call: fail if the peer refused it. */
  final void tokenUnchanged() {
    if (tokenRefusal != null) {
      fail(tokenRefusal);
    }
  }

  /** Make this the current call. Return false if the outcome is already known. */
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

  /** Record that the task has handed over its last batch. Idempotent. */
  final void finishSending() {
    sendingFinished = true;
  }

  final boolean isSendingFinished() {
    return sendingFinished;
  }

  /** Record a sign of progress from the peer. */
  final void progressed(long nowNanos) {
    progressNanos = nowNanos;
  }

  /** Return how long to wait until the next action is due or a timeout passes. */
  final long restNanos(long waitingSinceNanos, long nowNanos) {
    return switch (phase) {
      case BACKING_OFF -> Math.max(1, againNanos - nowNanos);
      case RUNNING ->
          call.connected()
              ? untilLateNanos(waitingSinceNanos, nowNanos)
              : options.connectTimeout().toNanos() - (nowNanos - call.startedNanos());
      // Only work of this side remains, and the end of that work wakes the task.
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

  /** Handle a wait that ended without a result: fail if a timeout has passed. */
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
              "the %s at %s showed no progress for %s s%s"
                  .formatted(
                      options.peer().noun(),
                      options.endpoint(),
                      seconds,
                      options.peer().note(Peer.Setting.REPLY_TIMEOUT))));
    }
  }

  /**
   * Handle an error that the peer sent in-band. If the error means that the peer is full, wait for
   * the call's status, because the status contains the time to retry. For any other error, treat
   * the call as lost at once.
   */
  final void takeError(Failure error, long nowNanos) {
    inBand = orLate(error, nowNanos);
    if (!error.isWithoutRoom()) {
      lose(inBand, OptionalLong.empty(), nowNanos);
    }
  }

  /** Return whether the peer has sent an in-band error for the current call. */
  final boolean hasError() {
    return inBand != null;
  }

  /** Return the failure of the current call, which ended with this status. */
  final Failure reasonOf(Status status, long nowNanos) {
    return inBand != null ? inBand : orLate(Failure.ofStatus(status, options), nowNanos);
  }

  /**
   * Return our own failure instead of the peer's if the deadline has passed. Both sides watch the
   * deadline, and the message must not depend on which side acts first.
   */
  private Failure orLate(Failure said, long nowNanos) {
    boolean late =
        said.kind() == ErrorKind.ERROR_KIND_DEADLINE
            && !options.deadline().isZero()
            && untilDeadlineNanos(nowNanos) <= 0;
    return late ? Failure.late(options) : said;
  }

  /** Handle a call whose messages break the protocol or cannot be read. */
  void onBroken(Call from, Failure broken) {
    if (isCurrent(from)) {
      fail(broken);
    }
  }

  /** Handle a call that ended with a status. */
  void onClosed(Call from, Status status, Metadata trailers, long nowNanos) {
    if (isCurrent(from)) {
      lose(reasonOf(status, nowNanos), Failure.retryAfterMilliseconds(trailers), nowNanos);
    }
  }

  /** Return why the client moved the last call to another pod. */
  final Replicas.Departure departure() {
    return departure;
  }

  /** Schedule a replacement for the lost call, or fail if no replacement is allowed. */
  private void lose(Failure reason, OptionalLong hint, long nowNanos) {
    departure = departure(reason);
    boolean unconnected = reason.origin() == Failure.Origin.CONNECTION && !call.connected();
    Failure told = unconnected ? reason.withMessage(reason.message() + call.explanation()) : reason;
    Recovery.Decision decision = decide(told, hint, nowNanos);
    if (decision instanceof Recovery.Decision.Again again) {
      phase = phase.after(Phase.Event.LOST);
      againNanos = nowNanos + again.pause().toNanos();
    } else if (decision instanceof Recovery.Decision.WithAnotherToken needed) {
      // The task's thread reads the token file, because this thread may be gRPC's event loop, which
      // must not block on files.
      phase = phase.after(Phase.Event.LOST);
      againNanos = nowNanos;
      tokenRefusal = needed.failure();
    } else if (decision instanceof Recovery.Decision.GiveUp last) {
      fail(last.failure());
    }
  }

  private Replicas.Departure departure(Failure reason) {
    if (reason.origin() == Failure.Origin.CONNECTION) {
      return call.connected() ? Replicas.Departure.LOST : Replicas.Departure.UNAVAILABLE;
    }
    return switch (reason.kind()) {
      case ERROR_KIND_POOL_UNAVAILABLE -> Replicas.Departure.UNAVAILABLE;
      case ERROR_KIND_POOL_BUSY -> Replicas.Departure.BUSY;
      default -> Replicas.Departure.LOST;
    };
  }

  /** Record that the peer has finished and the counts of both sides agree. */
  final void finish() {
    phase = phase.after(Phase.Event.FINISHED);
  }

  /** Fail with this reason, unless the outcome is already known. */
  void fail(Failure reason) {
    if (phase.isUndecided()) {
      failWith(reason);
    }
  }

  /** Set this failure as the outcome. */
  final void failWith(Failure reason) {
    phase = phase.after(Phase.Event.FAILED);
    failure = reason;
  }

  /** Return the failure as an exception. Call this only in phase {@link Phase#FAILED}. */
  final ExchangeException failure() {
    return failure.toException();
  }

  /** Release everything. Later events have no effect. */
  void close() {
    phase = phase.after(Phase.Event.CLOSED);
  }
}
