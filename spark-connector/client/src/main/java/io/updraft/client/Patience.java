// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;

/** Bounded waits that an interruption does not end: the thread is interrupted again afterwards. */
final class Patience {
  /** A wait on a lock that the caller holds, until it is notified or so much time has passed. */
  @FunctionalInterface
  interface Pause {
    void await(long nanos) throws InterruptedException;
  }

  private Patience() {}

  /** Waits until something is done, at most so long. */
  static void await(BooleanSupplier done, long milliseconds, Pause pause) {
    long endNanos = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(milliseconds);
    boolean interrupted = false;
    long restNanos = endNanos - System.nanoTime();
    while (!done.getAsBoolean() && restNanos > 0) {
      try {
        pause.await(restNanos);
      } catch (InterruptedException e) {
        interrupted = true;
      }
      restNanos = endNanos - System.nanoTime();
    }
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
  }
}
