// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

/**
 * Admission state of one call, which decides what the client may send. Until the pool assigns a
 * worker to the exchange, the client sends few bytes, so that a refusal wastes little. It also
 * sends only batches that it can send again, so that no batch is lost if the pool dies while the
 * exchange is queued.
 */
final class Admission {
  /** Limit on the bytes that a call sends before admission, including the command. */
  static final int BYTES_BEFORE_ADMISSION = 64 << 10;

  /** Stage of a call. */
  enum Stage {
    /** The pool waits for the command, the function or artifacts. No batch may be sent yet. */
    PREPARING,
    /** Like PREPARING, except that the pool has already assigned a worker to the exchange. */
    PREPARING_ADMITTED,
    /** The exchange is waiting for a worker. Small batches that can be sent again may follow. */
    QUEUED,
    /** The exchange has a worker: batches of any size may follow. */
    ADMITTED,
    /** This side has announced that it sent every batch. */
    FINISHED;

    /** Event that advances the stage. */
    enum Event {
      /** This side has sent everything that the pool asked for. */
      OPENED,
      /** The pool has assigned a worker to the exchange. */
      ADMITTED,
      /** This side has announced that it sent every batch. */
      FINISHED
    }

    /** Return the next stage; a redundant event leaves the stage unchanged. */
    Stage after(Event event) {
      return switch (this) {
        case PREPARING ->
            switch (event) {
              case OPENED -> QUEUED;
              case ADMITTED -> PREPARING_ADMITTED;
              case FINISHED -> this;
            };
        case PREPARING_ADMITTED -> event == Event.OPENED ? ADMITTED : this;
        case QUEUED ->
            switch (event) {
              case OPENED -> this;
              case ADMITTED -> ADMITTED;
              case FINISHED -> FINISHED;
            };
        case ADMITTED -> event == Event.FINISHED ? FINISHED : this;
        case FINISHED -> this;
      };
    }
  }

  private Stage stage = Stage.PREPARING;
  private long earlyBytes;
  private long openedNanos;
  private boolean admitted;
  private long admittedNanos;
  private boolean handedOver;

  /** Reset the state for a new call. */
  void restart() {
    stage = Stage.PREPARING;
    earlyBytes = 0;
    admitted = false;
    handedOver = false;
  }

  /** Record that the call has sent its command and everything that the pool asked for. */
  void opened(long commandBytes, long nowNanos) {
    stage = stage.after(Stage.Event.OPENED);
    earlyBytes = commandBytes;
    openedNanos = nowNanos;
  }

  /** Record that the pool has assigned a worker to the exchange. */
  void admitted(long nowNanos) {
    admitted = true;
    admittedNanos = nowNanos;
    stage = stage.after(Stage.Event.ADMITTED);
  }

  /** Return whether this side has sent everything that the pool asked for. */
  boolean isOpen() {
    return stage != Stage.PREPARING && stage != Stage.PREPARING_ADMITTED;
  }

  /** Return whether the pool has assigned a worker to the exchange. */
  boolean isAdmitted() {
    return admitted;
  }

  /** Return the value of {@link System#nanoTime} when the pool assigned a worker. */
  long admittedNanos() {
    return admittedNanos;
  }

  /** Return the value of {@link System#nanoTime} when the call opened. */
  long openedNanos() {
    return openedNanos;
  }

  /** Return whether the call may send this batch now. */
  boolean takes(RequestBatch batch, boolean replayable) {
    return switch (stage) {
      case PREPARING, PREPARING_ADMITTED, FINISHED -> false;
      case QUEUED -> replayable && earlyBytes + batch.bodyBytes() <= BYTES_BEFORE_ADMISSION;
      case ADMITTED -> true;
    };
  }

  /** Record that the call sends a batch. */
  void handOver(RequestBatch batch) {
    earlyBytes += batch.bodyBytes();
    handedOver = true;
  }

  /** Return whether the call may announce now that every batch was sent. */
  boolean takesFinish() {
    return stage == Stage.QUEUED || stage == Stage.ADMITTED;
  }

  /** Record that the call announces that every batch was sent. */
  void finish() {
    stage = stage.after(Stage.Event.FINISHED);
    handedOver = true;
  }

  /** Return whether the call has sent a batch or announced that every batch was sent. */
  boolean hasHandedOver() {
    return handedOver;
  }
}
