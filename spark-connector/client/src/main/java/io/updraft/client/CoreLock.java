// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BooleanSupplier;
import java.util.function.Supplier;

/**
 * The lock and the clock of a {@link CallCore}: whoever looks at the core or changes it, the task's
 * thread or gRPC's event loop, holds it; the task's thread waits on it. Under the lock messages are
 * sent, which calls nobody back; calls are opened and cancelled outside.
 */
final class CoreLock {
  private final ReentrantLock lock = new ReentrantLock();
  private final Condition changed = lock.newCondition();
  private final CallCore core;

  CoreLock(CallCore core) {
    this.core = core;
  }

  void lock() {
    lock.lock();
  }

  void unlock() {
    lock.unlock();
  }

  /** Lets the task's thread look again; only under the lock. */
  void wake() {
    changed.signalAll();
  }

  /** Runs an action under the lock, after which the task's thread looks again. */
  void run(Runnable action) {
    lock.lock();
    try {
      action.run();
      changed.signalAll();
    } finally {
      lock.unlock();
    }
  }

  /** What a question to the core is answered with. */
  <T> T read(Supplier<T> question) {
    lock.lock();
    try {
      return question.get();
    } finally {
      lock.unlock();
    }
  }

  /** Waits until something is found; false when a new call is to be begun first. */
  boolean await(BooleanSupplier found) throws InterruptedException {
    lock.lockInterruptibly();
    try {
      long waitingSinceNanos = System.nanoTime();
      while (!found.getAsBoolean()) {
        long nowNanos = System.nanoTime();
        if (core.isRecoveryDue(nowNanos)) {
          return false;
        }
        rest(waitingSinceNanos, nowNanos);
      }
      return true;
    } finally {
      lock.unlock();
    }
  }

  /** Waits until something is found; false when the call is over. */
  boolean awaitInCall(BooleanSupplier found) throws InterruptedException {
    lock.lockInterruptibly();
    try {
      long waitingSinceNanos = System.nanoTime();
      while (core.isRunning()) {
        if (found.getAsBoolean()) {
          return true;
        }
        rest(waitingSinceNanos, System.nanoTime());
      }
      return false;
    } finally {
      lock.unlock();
    }
  }

  private void rest(long waitingSinceNanos, long nowNanos) throws InterruptedException {
    long restNanos = core.restNanos(waitingSinceNanos, nowNanos);
    if (restNanos > 0) {
      changed.awaitNanos(restNanos);
    } else {
      core.expire(waitingSinceNanos, System.nanoTime());
    }
  }

  /**
   * Waits for something that follows the outcome, and at most so long; only under the lock.
   *
   * @return whether the thread was interrupted meanwhile
   */
  boolean awaitUninterruptibly(BooleanSupplier found, long milliseconds) {
    boolean interrupted = false;
    long endNanos = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(milliseconds);
    long restNanos = endNanos - System.nanoTime();
    while (!found.getAsBoolean() && restNanos > 0) {
      try {
        changed.awaitNanos(restNanos);
      } catch (InterruptedException e) {
        interrupted = true;
      }
      restNanos = endNanos - System.nanoTime();
    }
    return interrupted;
  }
}
