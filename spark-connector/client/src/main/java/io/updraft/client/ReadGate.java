// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import static java.util.concurrent.TimeUnit.NANOSECONDS;

/**
 * Gate that prevents the event loop from allocating memory for a task that has ended. After {@link
 * #close} has returned, no reply is being read, and none will be read later.
 */
final class ReadGate {
  /**
   * Limit on the wait for a read. A read only copies one message, so only a bug can make the wait
   * this long.
   */
  private static final long LONGEST_READ_MILLISECONDS = 30_000;

  private boolean shut;
  private Thread reader;

  /** Begin to read a reply; return false if reading is no longer allowed. */
  synchronized boolean enter() {
    if (!shut) {
      reader = Thread.currentThread();
    }
    return !shut;
  }

  /** End the read of a reply that was handed over or dropped. */
  synchronized void exit() {
    reader = null;
    notifyAll();
  }

  /** Forbid further reads. */
  synchronized void shut() {
    shut = true;
  }

  /** Forbid further reads and wait until the current read has ended. */
  synchronized void close() {
    shut = true;
    BoundedWait.await(
        () -> reader == null || reader == Thread.currentThread(),
        LONGEST_READ_MILLISECONDS,
        nanos -> NANOSECONDS.timedWait(this, nanos));
  }
}
