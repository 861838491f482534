// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

/** How far an exchange or a file is, over all of its calls. */
enum Phase {
  /** There is no call, or it was lost; the next begins at a set time. */
  BACKING_OFF,
  /** A call is open. */
  RUNNING,
  /** The peer finished and the numbers agree. */
  FINISHED,
  /** Nothing can be done. */
  FAILED,
  /** The task has closed it. */
  CLOSED;

  /** What moves it on. */
  enum Event {
    /** A new call took over. */
    BEGUN,
    /** The call was lost and another may take its place. */
    LOST,
    /** The peer's last word agrees with what was sent. */
    FINISHED,
    /** What happened cannot be made good. */
    FAILED,
    /** The task needs nothing more. */
    CLOSED
  }

  /** The phase that follows; an event that comes too early or too late changes nothing. */
  Phase after(Event event) {
    return switch (event) {
      case BEGUN -> this == BACKING_OFF ? RUNNING : this;
      case LOST -> this == RUNNING ? BACKING_OFF : this;
      case FINISHED -> this == RUNNING ? FINISHED : this;
      // A finished file fails when the bytes that came back cannot be stored.
      case FAILED -> this == CLOSED ? CLOSED : FAILED;
      case CLOSED -> CLOSED;
    };
  }

  /** Whether the outcome is open. */
  boolean isUndecided() {
    return this == BACKING_OFF || this == RUNNING;
  }
}
