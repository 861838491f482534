// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import static java.util.concurrent.TimeUnit.NANOSECONDS;

/**
 * Keeps the event loop from allocating for a task that has ended: once {@link #close} has returned,
 * no reply is being read and none will be.
 */
final class ReadGate {
  /** Reading is a copy of one message: this only bounds a defect. */
  private static final long LONGEST_READ_MILLISECONDS = 30_000;

  private boolean shut;
  private Thread reader;

  /** Begins to read a reply; false when nothing may be read any more. */
  synchronized boolean enter() {
    if (!shut) {
      reader = Thread.currentThread();
    }
    return !shut;
  }

  /** The reply was read and handed over, or dropped. */
  synchronized void exit() {
    reader = null;
    notifyAll();
  }

  /** Nothing more is read. */
  synchronized void shut() {
    shut = true;
  }

  /** Nothing more is read, and what is being read has been handed over. */
  synchronized void close() {
    shut = true;
    Patience.await(
        () -> reader == null || reader == Thread.currentThread(),
        LONGEST_READ_MILLISECONDS,
        nanos -> NANOSECONDS.timedWait(this, nanos));
  }
}
