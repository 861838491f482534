// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.function.LongBinaryOperator;

/**
 * How often the tasks of this JVM together try to connect to an address that is dead. After some
 * attempts in vain the circuit is open: calls fail at once, as gRPC's channel fails them, and one
 * attempt at growing, jittered intervals finds out whether the address is back; a connection closes
 * the circuit. Tasks wait and give up as {@link Recovery} says: the circuit only saves attempts.
 * Callers read the clock.
 */
final class Circuit {
  /** Attempts that need not wait for one another: a process that was killed is back soon. */
  static final int FREE_ATTEMPTS = 5;

  /** The least time between two attempts of an open circuit, at first. */
  static final long FIRST_INTERVAL_NANOS = TimeUnit.MILLISECONDS.toNanos(200);

  /** At most so long: less than tasks wait between their tries, so that none is in vain. */
  static final long LONGEST_INTERVAL_NANOS = TimeUnit.SECONDS.toNanos(2);

  private static final int DOUBLINGS = 4;

  private final LongBinaryOperator between;
  private int attempts;
  private long nextNanos;

  Circuit() {
    this((least, most) -> ThreadLocalRandom.current().nextLong(least, most + 1));
  }

  /**
   * A closed circuit.
   *
   * @param between a number from the first to the second, both included
   */
  Circuit(LongBinaryOperator between) {
    this.between = between;
  }

  /** Whether a call whose connection has failed may try again now; counts the attempt if so. */
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

  /** The address has answered. */
  synchronized void connected() {
    attempts = 0;
  }

  /** Whether attempts wait for one another. */
  synchronized boolean isOpen() {
    return attempts >= FREE_ATTEMPTS;
  }

  /** What to tell of a call that could not connect; empty while the circuit is closed. */
  synchronized String explanation() {
    return isOpen()
        ? "; the circuit is open after %d attempts to connect, and the tasks of this JVM share the next"
            .formatted(attempts)
        : "";
  }
}
