// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.updraft.proto.v1.Ask;
import io.updraft.proto.v1.Finish;
import java.util.ArrayList;
import java.util.List;

/**
 * The batches of a file, numbered from 1: which wait here, for which credit was asked for or given,
 * and which were sent and stored. Not thread-safe.
 */
final class CreditWindow implements AutoCloseable {
  /** How many asks may be unanswered: the protocol's limit. */
  private static final int MOST_UNANSWERED_ASKS = 16;

  private final long windowBytes;

  /** Batches that were not sent yet. */
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

  /** Whether everything that was taken over was sent. */
  boolean isEmpty() {
    return waiting.isEmpty();
  }

  /** Whether everything that was taken over is stored. */
  boolean isStored() {
    return waiting.isEmpty() && stored == sent;
  }

  /** Whether one more batch of this size may wait here; a single one always may. */
  boolean hasRoom(long bytes) {
    return waiting.isEmpty() || waitingBytes + bytes <= windowBytes;
  }

  void add(RequestBatch batch) {
    waiting.add(batch);
    waitingBytes += batch.bodyBytes();
  }

  /** A new call begins, which knows of no batch. */
  void restart() {
    asked = 0;
    credit = 0;
    slicer.restart();
  }

  /** The next request for credit; null when none may be sent. */
  Ask nextAsk() {
    if (asked >= sent + waiting.size() || asked - credit >= MOST_UNANSWERED_ASKS) {
      return null;
    }
    RequestBatch batch = waiting.get((int) (asked - sent));
    asked++;
    return Ask.newBuilder().setBodyBytes(batch.bodyBytes()).build();
  }

  /** Whether there is credit for the next batch. */
  boolean hasCredit() {
    return sent < credit;
  }

  /**
   * The next slice of the next batch, which is sent now; with the last one the batch is taken out.
   */
  BatchSlice send() {
    BatchSlice slice = slicer.next(waiting.get(0));
    if (slice.isLast()) {
      RequestBatch batch = waiting.remove(0);
      waitingBytes -= batch.bodyBytes();
      sent++;
      sentRows += batch.rows();
    }
    return slice;
  }

  /** What was sent in all. */
  Finish finish() {
    return Finish.newBuilder().setBatches(sent).setRows(sentRows).build();
  }

  /** Takes credit up to a batch; zero means that the message had no such field. */
  void takeCredit(long number) throws MalformedReplyException {
    if (number != 0 && (number < credit || number > asked)) {
      throw new MalformedReplyException(
          "the writer gave credit up to batch %d after %d, of %d asked for"
              .formatted(number, credit, asked));
    }
    credit = Math.max(credit, number);
  }

  /** The writer has stored every batch up to this one; zero means that it did not say. */
  void takeStored(long number) throws MalformedReplyException {
    if (number > sent) {
      throw new MalformedReplyException(
          "the writer has stored batch %d of %d that were sent".formatted(number, sent));
    }
    stored = Math.max(stored, number);
  }

  /** Releases what was not sent. */
  @Override
  public void close() {
    waiting.forEach(RequestBatch::close);
    waiting.clear();
    waitingBytes = 0;
  }
}
