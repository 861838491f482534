// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

/**
 * How far the pool has admitted one call of an exchange, and so what may be sent in it. Before the
 * pool has a worker for the exchange, little is sent, so that a refusal wastes little, and only
 * what can be sent again, so that a pool that dies with the exchange in its queue loses no batch.
 */
final class Admission {
  /** Bytes that may be sent in a call before it is admitted, its command included. */
  static final int BYTES_BEFORE_ADMISSION = 64 << 10;

  /** How far a call has come. */
  enum Stage {
    /** The pool still lacks what it asks for before the first batch. */
    PREPARING,
    /** The same, but the pool has already said that the exchange has its worker. */
    PREPARING_ADMITTED,
    /** Batches may follow; the exchange waits for its worker. */
    QUEUED,
    /** The exchange has its worker: batches of any size may follow. */
    ADMITTED,
    /** The pool was told that every batch was sent. */
    FINISHED;

    /** What moves a call on. */
    enum Event {
      /** This side has sent all that the pool asked for. */
      OPENED,
      /** The pool has a worker for the exchange. */
      ADMITTED,
      /** This side has said that every batch was sent. */
      FINISHED
    }

    /** The stage that follows; an event that says nothing new changes nothing. */
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
  private boolean handedOver;

  /** A new call begins. */
  void restart() {
    stage = Stage.PREPARING;
    earlyBytes = 0;
    handedOver = false;
  }

  /** The call has sent its command and what the pool asked for. */
  void opened(long commandBytes, long nowNanos) {
    stage = stage.after(Stage.Event.OPENED);
    earlyBytes = commandBytes;
    openedNanos = nowNanos;
  }

  /** The pool has a worker for the exchange. */
  void admitted() {
    stage = stage.after(Stage.Event.ADMITTED);
  }

  /** Whether this side has sent all that the pool asked for. */
  boolean isOpen() {
    return stage != Stage.PREPARING && stage != Stage.PREPARING_ADMITTED;
  }

  /** Since when it is open. */
  long openedNanos() {
    return openedNanos;
  }

  /** Whether the call may be given a batch. */
  boolean takes(RequestBatch batch, boolean replayable) {
    return switch (stage) {
      case PREPARING, PREPARING_ADMITTED, FINISHED -> false;
      case QUEUED -> replayable && earlyBytes + batch.bodyBytes() <= BYTES_BEFORE_ADMISSION;
      case ADMITTED -> true;
    };
  }

  /** The call is given a batch. */
  void handOver(RequestBatch batch) {
    earlyBytes += batch.bodyBytes();
    handedOver = true;
  }

  /** Whether the call may be told that every batch was sent. */
  boolean takesFinish() {
    return stage == Stage.QUEUED || stage == Stage.ADMITTED;
  }

  /** The call is told that every batch was sent. */
  void finish() {
    stage = stage.after(Stage.Event.FINISHED);
    handedOver = true;
  }

  /** Whether the call was given a batch, or told that there is none. */
  boolean hasHandedOver() {
    return handedOver;
  }
}
