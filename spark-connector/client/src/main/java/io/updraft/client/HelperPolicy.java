// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import java.util.concurrent.TimeUnit;

/**
 * Policy for the helpers of one task: when to ask the pool for one more. A task asks while it
 * spends at least half of its time waiting for its function. It first waits as long as its own
 * first reply took, because a helper may have to load the function too. The callers read the clock.
 * Not thread-safe.
 */
final class HelperPolicy {
  /** Limit on the helpers that a task has at the same time. */
  static final int MOST_HELPERS = 7;

  /**
   * How long a helper takes batches. Then it ends and another one may follow, so that exchanges
   * that wait for a worker get one in about this time.
   */
  static final long SHIFT_NANOS = TimeUnit.SECONDS.toNanos(1);

  /** Shortest wait that is worth the messages that open an exchange. */
  private static final long LEAST_WAIT_NANOS = TimeUnit.MILLISECONDS.toNanos(20);

  private static final long FIRST_PAUSE_NANOS = TimeUnit.MILLISECONDS.toNanos(250);

  /** Longest pause after a refusal. A worker that comes free meanwhile stays idle for that long. */
  private static final long LONGEST_PAUSE_NANOS = TimeUnit.SECONDS.toNanos(4);

  private final long openedNanos;

  /** Wait after which a helper is worth its start; zero before the first reply. */
  private long worthNanos;

  private long measuredSinceNanos;
  private long waitedNanos;
  private long pausedUntilNanos;
  private long pauseNanos = FIRST_PAUSE_NANOS;

  /** True if a shift has just ended: its worker may go on at once. */
  private boolean shiftEnded;

  private boolean stopped;

  HelperPolicy(long nowNanos) {
    this.openedNanos = nowNanos;
  }

  /** Record a batch of results. */
  void replied(long nowNanos) {
    if (worthNanos == 0) {
      worthNanos = Math.max(LEAST_WAIT_NANOS, nowNanos - openedNanos);
      measureFrom(nowNanos);
    }
  }

  /** Record that the task has waited for the pool. */
  void waited(long nanos) {
    waitedNanos += nanos;
  }

  /** Return whether to ask for a helper now. */
  boolean isDue(int helpers, long nowNanos) {
    if (stopped || worthNanos == 0 || helpers >= MOST_HELPERS) {
      return false;
    }
    boolean mostlyWaits = 2 * waitedNanos >= nowNanos - measuredSinceNanos;
    boolean enough = shiftEnded || waitedNanos >= worthNanos;
    return mostlyWaits && enough && nowNanos - pausedUntilNanos >= 0;
  }

  /** Record that a helper was asked for. */
  void asked(long nowNanos) {
    shiftEnded = false;
    measureFrom(nowNanos);
  }

  /** Record that a helper has answered its last batch. */
  void shiftEnded() {
    shiftEnded = true;
    pauseNanos = FIRST_PAUSE_NANOS;
  }

  /**
   * Record that a helper got no work. Ask again after a pause if the pool was busy; otherwise,
   * never ask again.
   */
  void refused(boolean busy, long nowNanos) {
    stopped |= !busy;
    pausedUntilNanos = nowNanos + pauseNanos;
    pauseNanos = Math.min(LONGEST_PAUSE_NANOS, 2 * pauseNanos);
  }

  private void measureFrom(long nowNanos) {
    measuredSinceNanos = nowNanos;
    waitedNanos = 0;
  }
}
