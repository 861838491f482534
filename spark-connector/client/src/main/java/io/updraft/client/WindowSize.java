// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

/**
 * Number of batches that may be in flight in one exchange. It follows the network: the function
 * should never be idle because the client has not yet learned that earlier batches were taken.
 *
 * <p>One batch at a time is timed, from when it is sent until the client learns that the function
 * has taken it. The shortest of these times counts as the network's. The window is its smallest
 * size plus the number of batches that the function takes in that time. So a window that holds up
 * the function grows with each timed batch until the function is the limit. It never shrinks,
 * because a task may already have seen the room. A slow first batch can double it; the window's
 * bytes bound it in any case. Not thread-safe.
 */
final class WindowSize {
  private final int smallest;
  private long shortestNanos = Long.MAX_VALUE;

  /** Number of the batch that is timed; zero if none is. */
  private long timed;

  private long timedSinceNanos;
  private long takenBefore;
  private long batches;

  /**
   * Create the size of a new exchange.
   *
   * @param smallest size on a network without delay
   */
  WindowSize(int smallest) {
    this.smallest = smallest;
    this.batches = smallest;
  }

  /** Return how many batches may be in flight. */
  long batches() {
    return batches;
  }

  /**
   * Record that a batch is sent.
   *
   * @param taken number of the last batch that the function is known to have taken
   */
  void sent(long number, long taken, long nowNanos) {
    if (timed == 0) {
      timed = number;
      timedSinceNanos = nowNanos;
      takenBefore = taken;
    }
  }

  /** Record that the function has taken every batch up to this number. */
  void taken(long number, long nowNanos) {
    if (timed == 0 || number < timed) {
      return;
    }
    long nanos = Math.max(1, nowNanos - timedSinceNanos);
    shortestNanos = Math.min(shortestNanos, nanos);
    double meanwhile = number - takenBefore;
    batches = Math.max(batches, smallest + (long) (meanwhile * shortestNanos / nanos));
    timed = 0;
  }

  /** Stop timing a batch, because its call has ended. */
  void restart() {
    timed = 0;
  }
}
