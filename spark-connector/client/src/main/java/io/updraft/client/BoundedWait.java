// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;

/**
 * Bounded waits that continue if the thread is interrupted. After the wait, the thread's interrupt
 * flag is set again.
 */
final class BoundedWait {
  /** Wait on a lock that the caller holds, until a notification or the given time. */
  @FunctionalInterface
  interface Pause {
    void await(long nanos) throws InterruptedException;
  }

  private BoundedWait() {}

  /** Wait until the condition holds, but at most this long. */
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
