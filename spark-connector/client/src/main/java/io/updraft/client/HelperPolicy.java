// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import java.util.concurrent.TimeUnit;

/**
 * Policy that decides when a task asks the pool for another helper. The task asks if two conditions
 * hold: it spends at least half of its time waiting for its function, and these waits add up to the
 * time that its own first reply took. The second condition exists because the helper's worker may
 * have to load the function too. It does not apply if the new helper replaces a helper whose shift
 * has ended. Callers pass in the time. Not thread-safe.
 */
final class HelperPolicy {
  /** Least total wait that justifies opening an exchange. */
  private static final long LEAST_WAIT_NANOS = TimeUnit.MILLISECONDS.toNanos(20);

  /** Shortest time after which the policy discards half of the measured time and waits. */
  private static final long MEMORY_NANOS = TimeUnit.SECONDS.toNanos(2);

  private static final long FIRST_PAUSE_NANOS = TimeUnit.MILLISECONDS.toNanos(250);

  /**
   * Longest pause after a refusal. A worker that becomes free during the pause may stay idle until
   * its end.
   */
  private static final long LONGEST_PAUSE_NANOS = TimeUnit.SECONDS.toNanos(4);

  private final int mostHelpers;

  /** Total wait after which a helper is worth opening; zero before the first reply. */
  private long worthNanos;

  private long measuredSinceNanos;
  private long waitedNanos;
  private long againNanos;
  private long pauseNanos = FIRST_PAUSE_NANOS;

  /**
   * Number of helpers whose shifts ended and that were not replaced yet. Their workers have loaded
   * the function.
   */
  private int endedShifts;

  private boolean stopped;

  HelperPolicy(int mostHelpers) {
    this.mostHelpers = mostHelpers;
  }

  /**
   * Record a batch of results.
   *
   * @param admittedNanos when the pool assigned a worker to the task
   */
  void replied(long admittedNanos, long nowNanos) {
    if (worthNanos == 0) {
      worthNanos = Math.max(LEAST_WAIT_NANOS, nowNanos - admittedNanos);
      againNanos = nowNanos;
      measureFrom(nowNanos);
    }
  }

  /** Record that the task has waited this long for the pool. */
  void waited(long nanos) {
    waitedNanos += nanos;
  }

  /** Return whether a task with this many helpers should ask for another one. */
  boolean isDue(int helpers, long nowNanos) {
    if (stopped || worthNanos == 0 || helpers >= mostHelpers || nowNanos - againNanos < 0) {
      return false;
    }
    boolean mostlyWaits = 2 * waitedNanos >= nowNanos - measuredSinceNanos;
    boolean isWorth = mostlyWaits && (endedShifts > 0 || waitedNanos >= worthNanos);
    if (!isWorth && nowNanos - measuredSinceNanos >= Math.max(MEMORY_NANOS, 4 * worthNanos)) {
      measuredSinceNanos += (nowNanos - measuredSinceNanos) / 2;
      waitedNanos /= 2;
    }
    return isWorth;
  }

  /** Record that the task has asked for a helper. */
  void asked(long nowNanos) {
    endedShifts = Math.max(0, endedShifts - 1);
    measureFrom(nowNanos);
  }

  /** Record that a helper has answered its last batch. */
  void shiftEnded() {
    endedShifts++;
    pauseNanos = FIRST_PAUSE_NANOS;
  }

  /** Record that the pool had no worker for a helper. The task asks again after a pause. */
  void busy(long nowNanos) {
    againNanos = nowNanos + pauseNanos;
    pauseNanos = Math.min(LONGEST_PAUSE_NANOS, 2 * pauseNanos);
  }

  /** Never ask for a helper again. */
  void stop() {
    stopped = true;
  }

  private void measureFrom(long nowNanos) {
    measuredSinceNanos = nowNanos;
    waitedNanos = 0;
  }
}
