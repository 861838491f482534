// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import java.util.TreeMap;

/**
 * The request batches of an exchange, numbered from 1: what the task has sent, what the current
 * call has, what the function has taken and answered, what may still be sent again, and so how much
 * room the window has. Not thread-safe.
 */
final class RequestLog implements AutoCloseable {
  private final int windowBatches;
  private final long windowBytes;
  private final long replayBytes;
  private final TreeMap<Long, RequestBatch> held = new TreeMap<>();
  private final boolean oneToOne;
  private boolean replayable;
  private long sent;
  private long transmitted;
  private long consumed;
  private long answered;
  private long inFlightBytes;
  private long unansweredBytes;
  private long forgottenBytes;

  /**
   * An empty log.
   *
   * @param replayBytes of batches that were taken and not answered, kept for a replay; beyond that
   *     the exchange gives replay up. A single larger batch is kept
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

  /** Number of the last batch that the current call has sent. */
  long transmitted() {
    return transmitted;
  }

  /** Whether every batch that is not answered is still there. */
  boolean replayable() {
    return replayable;
  }

  /**
   * Bytes that the function had taken without an answer when they became too many to be kept; zero
   * if that did not happen.
   */
  long forgottenBytes() {
    return forgottenBytes;
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

  /** The function took every batch up to this number. */
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

  /** The task has a result: one that is not one-to-one cannot be given a second time. */
  void resultTaken() {
    if (!oneToOne && replayable) {
      forget();
    }
  }

  private void forget() {
    replayable = false;
    unansweredBytes = 0;
    held.headMap(consumed, true).values().forEach(RequestBatch::close);
    held.headMap(consumed, true).clear();
  }

  /** Whether replies are answers: batch for batch and row for row. */
  boolean oneToOne() {
    return oneToOne;
  }

  /**
   * Of a one-to-one function: the next batch was answered with so many rows.
   *
   * @throws MalformedReplyException if no such batch was sent, or it has other rows
   */
  void answeredNext(int rows) throws MalformedReplyException {
    if (answered == sent) {
      throw new MalformedReplyException("the pool answered a batch beyond the " + sent + " sent");
    }
    RequestBatch batch = held.get(answered + 1);
    if (batch != null && batch.rows() != rows) {
      throw new MalformedReplyException(
          "the pool answered batch %d of %d rows with %d"
              .formatted(answered + 1, batch.rows(), rows));
    }
    answered++;
    consumedThrough(answered);
    release(answered);
  }

  private void release(long number) {
    RequestBatch batch = held.remove(number);
    if (batch != null) {
      unansweredBytes -= batch.bodyBytes();
      batch.close();
    }
  }

  /** The first batch that the current call has not sent; null when it has sent them all. */
  RequestBatch untransmitted() {
    return transmitted < sent ? held.get(transmitted + 1) : null;
  }

  /** The current call has sent that batch. */
  void transmit() {
    transmitted++;
  }

  /** A new call begins: whatever is not answered counts as neither taken nor sent again. */
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
