// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.updraft.proto.v1.ErrorKind;
import java.util.Set;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;

/**
 * Exchange that helps the main exchange of its task for one shift, a limited time in which it takes
 * batches. A timer ends the shift, so that the worker becomes free even if the task's thread is
 * busy or waits for something else. The lock of {@link #exchange} guards the stage.
 */
final class Helper {
  /**
   * Length of a shift, and limit on the time until the pool assigns a worker. An exchange in the
   * pool's queue waits about this long for the helper's worker.
   */
  static final long SHIFT_MILLISECONDS = 1_000;

  /** Kinds of errors that mean that the pool currently has no worker for a helper. */
  private static final Set<ErrorKind> BUSY =
      Set.of(
          ErrorKind.ERROR_KIND_POOL_BUSY,
          ErrorKind.ERROR_KIND_POOL_FULL,
          ErrorKind.ERROR_KIND_POOL_UNAVAILABLE,
          ErrorKind.ERROR_KIND_UNSPECIFIED);

  /** Stage of a helper. */
  enum Stage {
    /** The task does not know yet whether the pool has a worker. */
    ASKED,
    /** The helper accepts batches. */
    WORKING,
    /** The helper accepts no more batches; replies may still arrive. */
    LEAVING
  }

  final Exchange exchange;
  private Stage stage = Stage.ASKED;
  private long sent;
  private int shiftsBeforeFirstReply;
  private int shiftsAfterFirstReply;
  private volatile ScheduledFuture<?> shift;

  /** Batches whose replies the task has not taken. Used only by the task's thread. */
  private int unanswered;

  Helper(Exchange exchange) {
    this.exchange = exchange;
  }

  /** Open the exchange. */
  void start() {
    shift =
        EventLoops.TIMER.scheduleAtFixedRate(
            this::endShift, SHIFT_MILLISECONDS, SHIFT_MILLISECONDS, TimeUnit.MILLISECONDS);
    exchange.startCall();
  }

  /**
   * End the shift, or the wait for a worker. If the worker needed several shifts for the first
   * reply, because it had to load the function, the helper stays for the same number of additional
   * shifts.
   */
  private void endShift() {
    try {
      if (exchange.read(() -> stage == Stage.ASKED && !exchange.core.isAdmitted())) {
        exchange.cancel("the pool has not assigned a worker in time");
      } else {
        exchange.locked(this::stayOrLeave);
      }
    } catch (RuntimeException | Error e) {
      exchange.cancel("the helper's shift could not be ended: " + e);
    }
  }

  private void stayOrLeave() {
    if (exchange.core.callsAsHelper() && sent > 0 && !exchange.core.hasAnswered()) {
      shiftsBeforeFirstReply++;
    } else if (shiftsAfterFirstReply++ >= shiftsBeforeFirstReply) {
      leave();
    }
  }

  /** Stop accepting batches. */
  void leave() {
    exchange.locked(
        () -> {
          stage = Stage.LEAVING;
          exchange.core.finishSending();
        });
  }

  Stage stage() {
    return exchange.read(() -> stage);
  }

  /** Return whether the helper's first reply has arrived. */
  boolean hasAnswered() {
    return exchange.read(exchange.core::hasAnswered);
  }

  /** Return whether the helper has sent a batch. */
  boolean hasWorked() {
    return exchange.read(() -> sent > 0);
  }

  /** Return the number of batches whose replies the task has not taken. */
  int unanswered() {
    return unanswered;
  }

  /** Record that the task has taken a reply. */
  void answered() {
    unanswered--;
  }

  /**
   * Return whether the task can ignore the helper's failure: the task has taken every reply, no
   * updates of accumulators are missing, and the failure is not an error that the function raised
   * after it received a batch.
   */
  boolean isHarmless(ExchangeException failure) {
    return unanswered == 0
        && !exchange.read(exchange.core::expectsUpdates)
        && (!hasWorked() || failure.kind() != ErrorKind.ERROR_KIND_USER);
  }

  /** Return whether a helper failed only because the pool had no worker for it. */
  static boolean isBusy(ExchangeException failure) {
    return BUSY.contains(failure.kind());
  }

  /**
   * Return whether the helper accepts a batch now. Before its first reply, a helper accepts a
   * single batch: the helper's worker may have to load the function, and the task, which returns
   * results in order, waits for that batch. The pool may answer all batches that a helper holds
   * before the task takes a reply, so the helper can always finish.
   */
  boolean takesBatch() {
    return exchange.read(this::hasRoom);
  }

  private boolean hasRoom() {
    ExchangeCore core = exchange.core;
    if (stage == Stage.ASKED && core.isAdmitted()) {
      stage = Stage.WORKING;
    }
    return stage == Stage.WORKING
        && core.isAdmitted()
        && core.callsAsHelper()
        && unanswered < (core.hasAnswered() ? exchange.options.windowBatches() : 1)
        && core.hasRoom();
  }

  /** Send a batch and take it over. Return false if the helper does not accept the batch. */
  boolean send(ArrowRecordBatch batch, int rows, BatchGroups groups) {
    exchange.lock.lock();
    try {
      if (!hasRoom()) {
        return false;
      }
      exchange.send(batch, rows, groups);
      sent++;
      unanswered++;
      return true;
    } finally {
      exchange.lock.unlock();
    }
  }

  /** Cancel the exchange if it has not finished, and release everything. */
  void close() {
    if (shift != null) {
      shift.cancel(false);
    }
    exchange.close();
  }
}
