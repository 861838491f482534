// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;

/**
 * Limit on how often all tasks of this JVM together may retry one endpoint. The budget first allows
 * a burst of retries, then one retry per interval, so that tasks refused at the same time retry one
 * after the other. Callers pass in the time.
 */
final class RetryBudget {
  static final int BURST = 10;
  static final long INTERVAL_NANOS = TimeUnit.MILLISECONDS.toNanos(100);

  private static final ConcurrentHashMap<Endpoint, RetryBudget> BUDGETS = new ConcurrentHashMap<>();

  /** Time at which the latest granted retry may begin; meaningless before the first retry. */
  private long latestNanos;

  private boolean used;

  /** Return the budget shared by all exchanges with an endpoint. */
  static RetryBudget of(Endpoint endpoint) {
    return BUDGETS.computeIfAbsent(endpoint, ignored -> new RetryBudget());
  }

  /** Take one retry from the budget and return the shortest wait before it. */
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
