// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

/** Phase of an exchange or a file, over all of its calls. */
enum Phase {
  /** No call is open yet, or it was lost; the next begins at a set time. */
  BACKING_OFF,
  /** A call is open. */
  RUNNING,
  /** The peer has finished and the counts agree. */
  FINISHED,
  /** The failure is final. */
  FAILED,
  /** The task has closed the exchange or file. */
  CLOSED;

  /** Event that advances the phase. */
  enum Event {
    /** A new call took over. */
    BEGUN,
    /** The call was lost and another one may replace it. */
    LOST,
    /** The peer's last message agrees with what was sent. */
    FINISHED,
    /** An unrecoverable failure occurred. */
    FAILED,
    /** The task needs nothing more. */
    CLOSED
  }

  /** Return the next phase; an event that comes too early or too late changes nothing. */
  Phase after(Event event) {
    return switch (event) {
      case BEGUN -> this == BACKING_OFF ? RUNNING : this;
      case LOST -> this == RUNNING ? BACKING_OFF : this;
      case FINISHED -> this == RUNNING ? FINISHED : this;
      // A finished file fails if the returned bytes cannot be stored.
      case FAILED -> this == CLOSED ? CLOSED : FAILED;
      case CLOSED -> CLOSED;
    };
  }

  /** Return whether the outcome is still open. */
  boolean isUndecided() {
    return this == BACKING_OFF || this == RUNNING;
  }
}
