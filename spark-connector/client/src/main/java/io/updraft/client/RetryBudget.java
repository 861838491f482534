// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;

/**
 * Limits how often all tasks of this JVM together may retry one endpoint: a burst, then at even
 * intervals, so that tasks that are refused together come back one after the other. Callers read
 * the clock.
 */
final class RetryBudget {
  static final int BURST = 10;
  static final long INTERVAL_NANOS = TimeUnit.MILLISECONDS.toNanos(100);

  private static final ConcurrentHashMap<Endpoint, RetryBudget> BUDGETS = new ConcurrentHashMap<>();

  /** When the latest retry that was let through may begin; meaningless before the first. */
  private long latestNanos;

  private boolean used;

  /** The budget that all exchanges with an endpoint share. */
  static RetryBudget of(Endpoint endpoint) {
    return BUDGETS.computeIfAbsent(endpoint, ignored -> new RetryBudget());
  }

  /** Takes one retry out of the budget: how long it has to wait at least. */
  synchronized long takeNanos(long nowNanos) {
    long fullNanos = nowNanos - BURST * INTERVAL_NANOS;
    if (!used || latestNanos - fullNanos < 0) {
      latestNanos = fullNanos;
    }
    used = true;
    latestNanos += INTERVAL_NANOS;
    return Math.max(0, latestNanos - nowNanos);
  }
}
