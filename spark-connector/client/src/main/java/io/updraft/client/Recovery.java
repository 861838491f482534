// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.updraft.proto.v1.ErrorKind;
import java.time.Duration;
import java.util.OptionalLong;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Policy for exchanges that end early: send the unanswered batches again, at once or after a pause,
 * or give up. Callers pass in the time and do the waiting.
 */
final class Recovery {

  /**
   * What this JVM knows about an endpoint that is unreachable now. {@link Recovery} waits longer
   * for an endpoint that is probably restarting.
   */
  enum Reachability {
    /**
     * The name has no address, or the directory of the socket is missing. The endpoint is probably
     * misspelled.
     */
    UNRESOLVED,
    /** The name has an address, but the endpoint has not answered this JVM yet. */
    RESOLVED,
    /** The endpoint has answered this JVM before, so it is probably restarting. */
    ANSWERED
  }

  private static final long FIRST_BACKOFF_MILLISECONDS = 50;
  private static final long LONGEST_BACKOFF_MILLISECONDS = 4_000;
  private static final int BACKOFF_DOUBLINGS = 10;

  /**
   * Number of busy pods that an exchange leaves before it waits in a queue. A smaller number makes
   * waits longer (docs/scale.md). A larger number causes more useless calls while all pods are
   * busy.
   */
  private static final int MOST_BUSY_PODS = 2;

  /** Interval of log messages about a waiting task. */
  private static final Duration TOLD_EVERY = Duration.ofSeconds(10);

  private static final Logger log = LoggerFactory.getLogger(Recovery.class);

  /** Nothing is to blame: the worker may not have started the function. */
  private static final long NOTHING = 0;

  /**
   * The setup before the first batch is to blame: importing, unpickling or initializing the
   * function.
   */
  private static final long THE_SETUP = -1;

  /** Decision about the next step. */
  sealed interface Decision {
    /** Make a new call after a pause. */
    record Again(Duration pause) implements Decision {}

    /**
     * Make a new call at once if the token file now has another token. Otherwise, fail the
     * exchange.
     */
    record WithAnotherToken(Failure failure) implements Decision {}

    /** Fail the exchange. */
    record GiveUp(Failure failure) implements Decision {}
  }

  /**
   * Progress of a call before it ended.
   *
   * @param workDone true if the function may have seen a batch
   * @param base number of the exchange's last batch before the first batch of the call
   * @param startedBatch number of the batch that the function is known to have worked on; zero if
   *     unknown
   * @param replayable true if all unanswered batches are still held
   * @param reach what is known about the endpoint
   */
  record Progress(
      boolean workDone, long base, long startedBatch, boolean replayable, Reachability reach) {}

  private final ClientOptions options;
  private final RetryBudget budget;
  private long acquiringSinceNanos;
  private Duration toldOfWait = Duration.ZERO;
  private int acquireTries;
  private int busyPods;
  private int replays;
  private int replaysInARow;
  private long suspect = NOTHING;

  /** True if the last call failed because the peer did not accept its token. */
  private boolean tokenRefused;

  Recovery(ClientOptions options, RetryBudget budget, long nowNanos) {
    this.options = options;
    this.budget = budget;
    this.acquiringSinceNanos = nowNanos;
  }

  /** Return how many times, in total, unanswered batches moved to another worker. */
  int replays() {
    return replays;
  }

  /**
   * Return whether the next call should move on if its pod is busy, instead of waiting in the pod's
   * queue.
   */
  boolean mayTryElsewhere() {
    return busyPods < MOST_BUSY_PODS;
  }

  /** Record that a batch was answered. The pool works, so no batch is suspected any longer. */
  void progressed() {
    replaysInARow = 0;
    suspect = NOTHING;
  }

  /** Exclude time spent in the peer's queue from the acquire timeout. */
  void waited(long nanos) {
    acquiringSinceNanos += nanos;
  }

  /** Decide what to do after a failure. */
  Decision decide(Failure failure, Progress progress, OptionalLong hint, long nowNanos) {
    if (failure.origin() == Failure.Origin.CLIENT) {
      return new Decision.GiveUp(failure);
    }
    // An in-band error means that the call was admitted, and that its token was revoked while the
    // call waited.
    boolean tokenRefusedBefore = tokenRefused && failure.details() == null;
    tokenRefused = failure.kind() == ErrorKind.ERROR_KIND_UNAUTHENTICATED && !progress.workDone();
    if (tokenRefused && !tokenRefusedBefore) {
      return new Decision.WithAnotherToken(failure);
    }
    boolean refused = isRefusal(failure) || failure.origin() == Failure.Origin.CONNECTION;
    if (!progress.workDone() && refused) {
      return acquireAgain(failure, progress.reach(), hint, nowNanos);
    }
    if (isLoss(failure) && progress.replayable()) {
      return replay(failure, progress, nowNanos);
    }
    return new Decision.GiveUp(failure);
  }

  private static boolean isRefusal(Failure failure) {
    return failure.isWithoutRoom() || failure.kind() == ErrorKind.ERROR_KIND_POOL_UNAVAILABLE;
  }

  /**
   * Return whether the worker or the connection was lost. An error of the function is not a loss.
   */
  static boolean isLoss(Failure failure) {
    return failure.origin() == Failure.Origin.CONNECTION
        || failure.kind() == ErrorKind.ERROR_KIND_WORKER
        || failure.kind() == ErrorKind.ERROR_KIND_POOL_UNAVAILABLE;
  }

  private Decision acquireAgain(
      Failure failure, Reachability reach, OptionalLong hint, long nowNanos) {
    if (failure.kind() == ErrorKind.ERROR_KIND_POOL_BUSY && mayTryElsewhere()) {
      // Moving on from a busy pod takes nothing from the retry budget, because the number of such
      // moves in a row is limited.
      busyPods++;
      return new Decision.Again(Duration.ZERO);
    }
    Duration limit = acquireLimit(failure, reach);
    long restMilliseconds = limit.minusNanos(nowNanos - acquiringSinceNanos).toMillis();
    if (restMilliseconds <= 0) {
      return new Decision.GiveUp(failure.withMessage(refused(failure, limit)));
    }
    long pause =
        Math.max(
            backoffMilliseconds(hint), TimeUnit.NANOSECONDS.toMillis(budget.takeNanos(nowNanos)));
    acquireTries++;
    tellOfWait(failure, limit, nowNanos);
    return new Decision.Again(Duration.ofMillis(Math.min(pause, restMilliseconds)));
  }

  private void tellOfWait(Failure failure, Duration limit, long nowNanos) {
    Duration waited = Duration.ofNanos(nowNanos - acquiringSinceNanos);
    if (waited.compareTo(toldOfWait.plus(TOLD_EVERY)) >= 0) {
      toldOfWait = waited;
      log.warn(
          "waiting for the {} at {} ({} so far, at most {}): {}",
          options.peer().noun(),
          options.endpoint(),
          seconds(waited),
          seconds(limit),
          failure.message());
    }
  }

  /**
   * Return how long to keep trying: longer if the peer is probably restarting than if the endpoint
   * may be misspelled.
   */
  private Duration acquireLimit(Failure failure, Reachability reach) {
    if (failure.origin() != Failure.Origin.CONNECTION) {
      return options.acquireTimeout();
    }
    boolean restarts =
        reach == Reachability.ANSWERED
            || (reach == Reachability.RESOLVED && failure.isRefusedConnection());
    boolean waits = restarts && options.acquireTimeout().compareTo(options.connectTimeout()) > 0;
    return waits ? options.acquireTimeout() : options.connectTimeout();
  }

  private String refused(Failure failure, Duration limit) {
    Peer peer = options.peer();
    if (failure.origin() == Failure.Origin.CONNECTION) {
      return "cannot reach a %s at %s within %s (%s); check that one listens there %s: %s"
          .formatted(
              peer.noun(),
              options.endpoint(),
              seconds(limit),
              limit.equals(options.connectTimeout())
                  ? peer.setting(Peer.Setting.CONNECT_TIMEOUT)
                  : peer.setting(Peer.Setting.ACQUIRE_TIMEOUT),
              expectation().formatted(peer.setting(Peer.Setting.ENDPOINT)),
              failure.message());
    }
    String why =
        failure.isWithoutRoom() ? "it is too small or too busy" : "it took no work in that time";
    return "the %s at %s gave no %s within %s (%s); %s (%s): %s"
        .formatted(
            peer.noun(),
            options.endpoint(),
            peer.grantedNoun(),
            seconds(limit),
            peer.setting(Peer.Setting.ACQUIRE_TIMEOUT),
            why,
            peer.setting(Peer.Setting.ENDPOINT),
            failure.message());
  }

  /** Return what else to check at an endpoint that cannot be reached. */
  private String expectation() {
    return options.endpoint().transport() == Endpoint.Transport.TLS
        ? "with TLS (%s) and whether it asks for a client certificate ("
            + options.peer().setting(Peer.Setting.TLS_CERTIFICATE_FILE)
            + ")"
        : "without TLS (%s)";
  }

  private static String seconds(Duration time) {
    return time.toMillis() / 1000.0 + " s";
  }

  /**
   * Return the pause before the next try. It grows with each try, is jittered between tasks, and is
   * at least the peer's hint.
   */
  private long backoffMilliseconds(OptionalLong hint) {
    long first =
        Math.min(
            Math.max(1, hint.orElse(FIRST_BACKOFF_MILLISECONDS)),
            options.acquireTimeout().toMillis());
    long grown =
        Math.min(
            Math.max(first, LONGEST_BACKOFF_MILLISECONDS),
            first << Math.min(acquireTries, BACKOFF_DOUBLINGS));
    long least = hint.isPresent() ? Math.max(first, grown / 2) : grown / 2;
    return ThreadLocalRandom.current().nextLong(least, grown + grown / 2 + 1);
  }

  private Decision replay(Failure failure, Progress progress, long nowNanos) {
    long blamed = blamed(failure, progress);
    if (blamed != NOTHING && blamed == suspect) {
      return new Decision.GiveUp(failure.withMessage(verdict(failure, blamed)));
    }
    suspect = blamed == NOTHING ? suspect : blamed;
    if (replaysInARow >= options.maxReplays()) {
      return new Decision.GiveUp(
          failure.withMessage(
              "gave up after %d replays in a row: %s".formatted(replaysInARow, failure.message())));
    }
    replaysInARow++;
    replays++;
    acquireTries = 0;
    busyPods = 0;
    acquiringSinceNanos = nowNanos;
    toldOfWait = Duration.ZERO;
    return new Decision.Again(Duration.ZERO);
  }

  /**
   * Return what to blame for a lost worker: a batch, the setup or nothing. A broken connection may
   * mean that the worker crashed its pod, for example by using all memory. In that case, blame a
   * batch only if the function had started it. If the pool is draining, nothing is to blame.
   */
  private static long blamed(Failure failure, Progress progress) {
    long told = failure.details() == null ? 0 : failure.details().getSequence();
    if (failure.kind() == ErrorKind.ERROR_KIND_POOL_UNAVAILABLE
        && failure.origin() == Failure.Origin.POOL) {
      return NOTHING;
    }
    if (told > 0) {
      return progress.base() + told;
    }
    if (progress.startedBatch() > 0) {
      return progress.startedBatch();
    }
    return failure.origin() == Failure.Origin.POOL ? THE_SETUP : NOTHING;
  }

  private static String verdict(Failure failure, long blamed) {
    if (blamed == THE_SETUP) {
      return "the function killed two workers before its first batch: " + failure.message();
    }
    String certainty =
        failure.origin() == Failure.Origin.CONNECTION ? "has probably killed" : "killed";
    return "batch %d %s two workers: %s".formatted(blamed, certainty, failure.message());
  }
}
