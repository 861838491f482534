// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.function.LongBinaryOperator;

/**
 * Circuit breaker that limits how often the tasks of this JVM together try to connect to a dead
 * address. After some failed attempts the circuit opens. While it is open, gRPC's channel fails
 * calls at once. Single attempts, at growing and jittered intervals, test whether the address
 * answers again. A successful connection closes the circuit. {@link Recovery} decides how long
 * tasks wait and when they give up; the circuit only reduces the number of attempts. Callers pass
 * in the time.
 */
final class Circuit {
  /** Number of attempts without a wait between them. A killed process is usually back soon. */
  static final int FREE_ATTEMPTS = 5;

  /** First interval between two attempts of an open circuit. */
  static final long FIRST_INTERVAL_NANOS = TimeUnit.MILLISECONDS.toNanos(200);

  /**
   * Longest interval. It is shorter than a task's own wait between tries, so that no try is wasted.
   */
  static final long LONGEST_INTERVAL_NANOS = TimeUnit.SECONDS.toNanos(2);

  private static final int DOUBLINGS = 4;

  private final LongBinaryOperator between;
  private int attempts;
  private long nextNanos;

  Circuit() {
    this((least, most) -> ThreadLocalRandom.current().nextLong(least, most + 1));
  }

  /**
   * Create a closed circuit.
   *
   * @param between returns a random number from the first argument to the second, both included
   */
  Circuit(LongBinaryOperator between) {
    this.between = between;
  }

  /**
   * Return whether a call may try to connect again now after a failed attempt. If it may, count
   * this attempt.
   */
  synchronized boolean mayAttempt(long nowNanos) {
    if (isOpen() && nowNanos - nextNanos < 0) {
      return false;
    }
    attempts++;
    if (isOpen()) {
      long interval =
          Math.min(
              LONGEST_INTERVAL_NANOS,
              FIRST_INTERVAL_NANOS << Math.min(DOUBLINGS, attempts - FREE_ATTEMPTS));
      nextNanos = nowNanos + between.applyAsLong(interval / 2, interval);
    }
    return true;
  }

  /** Record that the address has answered. */
  synchronized void connected() {
    attempts = 0;
  }

  /** Return whether the circuit is open, so that attempts have to wait. */
  synchronized boolean isOpen() {
    return attempts >= FREE_ATTEMPTS;
  }

  /**
   * Return text to append to the error of a call that could not connect; empty while the circuit is
   * closed.
   */
  synchronized String explanation() {
    return isOpen()
        ? "; the circuit is open after %d attempts to connect, so all tasks of this JVM wait for one common attempt"
            .formatted(attempts)
        : "";
  }
}
