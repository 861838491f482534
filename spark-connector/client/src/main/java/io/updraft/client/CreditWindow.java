// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.updraft.proto.v1.Ask;
import io.updraft.proto.v1.Finish;
import java.util.ArrayList;
import java.util.List;

/**
 * Batches of a file, numbered from 1, and the state of each batch: waiting on this side, credit
 * requested, credit given, sent, or stored. Not thread-safe.
 */
final class CreditWindow implements AutoCloseable {
  /** Limit on unanswered requests for credit, from the protocol. */
  private static final int MOST_UNANSWERED_ASKS = 16;

  private final long windowBytes;

  /** Batches that are not sent yet. */
  private final List<RequestBatch> waiting = new ArrayList<>();

  private final BatchSlicer slicer;

  private long waitingBytes;
  private long asked;
  private long credit;
  private long sent;
  private long sentRows;
  private long stored;

  CreditWindow(ClientOptions options) {
    this.windowBytes = options.windowBytes();
    this.slicer = new BatchSlicer(options.maxMessageBytes());
  }

  long sent() {
    return sent;
  }

  long sentRows() {
    return sentRows;
  }

  /** Return whether every batch of this window was sent. */
  boolean isEmpty() {
    return waiting.isEmpty();
  }

  /** Return whether the writer has stored every batch of this window. */
  boolean isStored() {
    return waiting.isEmpty() && stored == sent;
  }

  /**
   * Return whether the window accepts one more batch of this size. An empty window accepts a batch
   * of any size.
   */
  boolean hasRoom(long bytes) {
    return waiting.isEmpty() || waitingBytes + bytes <= windowBytes;
  }

  void add(RequestBatch batch) {
    waiting.add(batch);
    waitingBytes += batch.bodyBytes();
  }

  /** Reset for a new call, which has not asked for credit yet. */
  void restart() {
    asked = 0;
    credit = 0;
    slicer.restart();
  }

  /** Return the next request for credit; null if no request may be sent. */
  Ask nextAsk() {
    if (asked >= sent + waiting.size() || asked - credit >= MOST_UNANSWERED_ASKS) {
      return null;
    }
    RequestBatch batch = waiting.get((int) (asked - sent));
    asked++;
    return Ask.newBuilder().setBodyBytes(batch.bodyBytes()).build();
  }

  /** Return whether there is credit for the next batch. */
  boolean hasCredit() {
    return sent < credit;
  }

  /**
   * Return the next slice of the next batch. The caller must send the slice. The last slice of a
   * batch removes the batch from the window.
   */
  BatchSlicer.Slice send() {
    BatchSlicer.Slice slice = slicer.next(waiting.get(0));
    if (slice.isLast()) {
      RequestBatch batch = waiting.remove(0);
      waitingBytes -= batch.bodyBytes();
      sent++;
      sentRows += batch.rows();
    }
    return slice;
  }

  /** Return the numbers of batches and rows sent. */
  Finish finish() {
    return Finish.newBuilder().setBatches(sent).setRows(sentRows).build();
  }

  /**
   * Record credit for every batch up to this number. Zero means that the message contains no
   * credit.
   */
  void takeCredit(long number) throws MalformedReplyException {
    if (number != 0 && (number < credit || number > asked)) {
      throw new MalformedReplyException(
          "the writer gave credit up to batch %d, expected %d to %d"
              .formatted(number, credit, asked));
    }
    credit = Math.max(credit, number);
  }

  /**
   * Record that the writer has stored every batch up to this number. Zero means that the message
   * does not report stored batches.
   */
  void takeStored(long number) throws MalformedReplyException {
    if (number > sent) {
      throw new MalformedReplyException(
          "the writer reported batch %d as stored, but the task has sent %d"
              .formatted(number, sent));
    }
    stored = Math.max(stored, number);
  }

  /** Release the batches that were not sent. */
  @Override
  public void close() {
    waiting.forEach(RequestBatch::close);
    waiting.clear();
    waitingBytes = 0;
  }
}
