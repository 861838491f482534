// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import java.util.TreeMap;

/**
 * Log of an exchange's request batches, numbered from 1. It records which batches the task has
 * sent, which of them the current call has sent, and which the function has taken or answered. It
 * also tracks which batches can still be replayed and how much room the window has. Not
 * thread-safe.
 */
final class RequestLog implements AutoCloseable {
  private final int windowBatches;
  private final long windowBytes;
  private final long replayBytes;
  private final TreeMap<Long, RequestBatch> held = new TreeMap<>();
  private final boolean oneToOne;
  private boolean replayable;

  /** True if a worker will report updates of accumulators at its end. */
  private boolean expectsUpdates;

  private long sent;
  private long transmitted;
  private long consumed;
  private long answered;
  private long inFlightBytes;
  private long unansweredBytes;
  private long forgottenBytes;

  /**
   * Create an empty log.
   *
   * @param replayBytes limit on the bytes of taken but unanswered batches kept for a replay. If
   *     they exceed this limit, the exchange can no longer be replayed. A single larger batch is
   *     kept anyway
   */
  RequestLog(int windowBatches, long windowBytes, long replayBytes, Replay replay) {
    this.windowBatches = windowBatches;
    this.windowBytes = windowBytes;
    this.replayBytes = replayBytes;
    this.oneToOne = replay == Replay.REPLAY;
    this.replayable = replay != Replay.NEVER;
  }

  long sent() {
    return sent;
  }

  long answered() {
    return answered;
  }

  /** Return the number of the last batch that the current call has sent. */
  long transmitted() {
    return transmitted;
  }

  /** Return whether every unanswered batch is still held. */
  boolean replayable() {
    return replayable;
  }

  /**
   * Return how many bytes the function had taken without answering when these bytes exceeded the
   * replay limit; zero if they never exceeded it.
   */
  long forgottenBytes() {
    return forgottenBytes;
  }

  /**
   * Return the failure. If the exchange could not be replayed because of its batches or its
   * accumulators, add this explanation.
   */
  Failure explained(Failure failure, ClientOptions options) {
    if (!Recovery.isLoss(failure)) {
      return failure;
    }
    if (hasUnreportedUpdates()) {
      return failure.withMessage(
          failure.message()
              + "; not replayed: the function has accumulators or a profiler, and the updates of the answered batches are lost");
    }
    if (forgottenBytes == 0) {
      return failure;
    }
    return failure.withMessage(
        "%s; not replayed: the function had taken %d bytes without answering, and a task keeps at most %d (four times %s, at least 64m)"
            .formatted(
                failure.message(),
                forgottenBytes,
                replayBytes,
                options.peer().setting(Peer.Setting.WINDOW_BYTES)));
  }

  /**
   * Return the number of the batch that the function has started; zero if unknown, because the
   * worker may have died before it received its first batch.
   *
   * @param base number of the last batch before the first batch of the current call
   * @param taken number, within the current call, of the last batch that the function took
   */
  long startedBatch(long base, long taken) {
    if (!oneToOne) {
      return taken;
    }
    boolean sign = taken > 0 || answered > base;
    return sign && answered < sent ? answered + 1 : 0;
  }

  boolean hasRoom() {
    long inFlight = sent - consumed;
    return inFlight == 0 || (inFlight < windowBatches && inFlightBytes < windowBytes);
  }

  void add(RequestBatch batch) {
    sent++;
    held.put(sent, batch);
    inFlightBytes += batch.bodyBytes();
  }

  /** Record that the function has taken every batch up to this number. */
  void consumedThrough(long number) {
    for (long taken = consumed + 1; taken <= number; taken++) {
      long bytes = held.get(taken).bodyBytes();
      inFlightBytes -= bytes;
      unansweredBytes += bytes;
      if (!replayable) {
        release(taken);
      }
    }
    consumed = Math.max(consumed, number);
    if (replayable && unansweredBytes > replayBytes && consumed - answered > 1) {
      forgottenBytes = unansweredBytes;
      forget();
    }
  }

  /**
   * Record that the task has taken a result. If the function is not one-to-one, the exchange cannot
   * be replayed from now on, because a replay would deliver this result again.
   */
  void resultTaken() {
    if (!oneToOne && replayable) {
      forget();
    }
  }

  /**
   * Record whether the current worker will report updates of accumulators. If so, a one-to-one
   * exchange cannot be replayed after its first answer, because the worker reports the updates of
   * all batches together at its end.
   */
  void expectUpdates(boolean expected) {
    expectsUpdates |= expected;
  }

  /** Return whether a worker has answered a batch for which it reports updates of accumulators. */
  boolean hasUnreportedUpdates() {
    return expectsUpdates && oneToOne && answered > 0;
  }

  private void forget() {
    replayable = false;
    unansweredBytes = 0;
    held.headMap(consumed, true).values().forEach(RequestBatch::close);
    held.headMap(consumed, true).clear();
  }

  /** Return whether replies answer requests batch for batch and row for row. */
  boolean oneToOne() {
    return oneToOne;
  }

  /**
   * Record that a one-to-one function has answered the next batch with this many rows.
   *
   * @throws MalformedReplyException if no such batch was sent, or if the batch has a different
   *     number of rows
   */
  void answeredNext(int rows) throws MalformedReplyException {
    if (answered == sent) {
      throw new MalformedReplyException(
          "the pool answered more batches than the " + sent + " sent");
    }
    RequestBatch batch = held.get(answered + 1);
    if (batch != null && batch.rows() != rows) {
      throw new MalformedReplyException(
          "the pool answered batch %d, which has %d rows, with %d rows"
              .formatted(answered + 1, batch.rows(), rows));
    }
    answered++;
    consumedThrough(answered);
    release(answered);
    if (expectsUpdates && replayable) {
      forget();
    }
  }

  private void release(long number) {
    RequestBatch batch = held.remove(number);
    if (batch != null) {
      unansweredBytes -= batch.bodyBytes();
      batch.close();
    }
  }

  /** Return the first batch that the current call has not sent; null if it has sent every batch. */
  RequestBatch untransmitted() {
    return transmitted < sent ? held.get(transmitted + 1) : null;
  }

  /** Record that the current call has sent the batch that {@link #untransmitted} returns. */
  void transmit() {
    transmitted++;
  }

  /** Reset for a new call, to which no unanswered batch was sent yet. */
  void restart() {
    consumed = Math.min(answered, consumed);
    transmitted = oneToOne ? answered : 0;
    unansweredBytes = 0;
    inFlightBytes = held.values().stream().mapToLong(RequestBatch::bodyBytes).sum();
  }

  @Override
  public void close() {
    held.values().forEach(RequestBatch::close);
    held.clear();
  }
}
