// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

/**
 * Exchange that helps the main exchange of its task for one shift, a limited time in which it takes
 * batches. Used only by the task's thread, except for {@link #exchange}, which any thread may
 * cancel.
 */
final class Helper {
  /** Stage of a helper. */
  enum Stage {
    /** The pool has not said yet whether a worker is idle. */
    ASKED,
    /** The helper takes batches. */
    WORKING,
    /** The helper takes no more batches, and replies may be on their way. */
    LEAVING
  }

  final Exchange exchange;
  private Stage stage = Stage.ASKED;
  private long leavesNanos;
  private long sent;
  private int unanswered;

  Helper(Exchange exchange) {
    this.exchange = exchange;
  }

  /** Return whether the pool had a worker for the helper. */
  boolean hasWorked() {
    return stage != Stage.ASKED;
  }

  /** Return the number of batches that the helper has and has not answered. */
  int unanswered() {
    return unanswered;
  }

  /** Return whether the helper has answered all of its batches and gets no more. */
  boolean isDone() {
    return stage == Stage.LEAVING && unanswered == 0;
  }

  /** Return why the helper failed before it had a batch; null if it did not. */
  ExchangeException failureWithoutWork() {
    return sent > 0 ? null : exchange.failure();
  }

  /** Begin the shift once the pool has given a worker, and end it when its time is over. */
  void advance(long nowNanos) {
    if (stage == Stage.ASKED && exchange.read(exchange.core::isAdmitted)) {
      stage = Stage.WORKING;
      leavesNanos = nowNanos + HelperPolicy.SHIFT_NANOS;
    } else if (stage == Stage.WORKING && nowNanos - leavesNanos >= 0) {
      leave();
    }
  }

  /** Take no more batches. */
  void leave() {
    stage = Stage.LEAVING;
    exchange.finishSending();
  }

  /**
   * Return whether the helper may take a batch. Until its worker has taken the first batch, it gets
   * no other: loading the function may take long, and the task's results wait for it.
   */
  boolean takesBatch() {
    return stage == Stage.WORKING
        && (sent == 0 || exchange.read(exchange.core::hasTakenBatch))
        && exchange.failure() == null
        && exchange.hasRoom();
  }

  void sent() {
    sent++;
    unanswered++;
  }

  void answered() {
    unanswered--;
  }
}
