// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

/**
 * Slicer that cuts the batches of a call into slices, one for each message. Nearly every batch is a
 * single slice. Not thread-safe.
 */
final class BatchSlicer {
  /**
   * Size limit of a part. Splitting costs little, and other exchanges can use the connection
   * between two parts.
   */
  private static final int MOST_PART_BYTES = 16 << 20;

  /**
   * Bytes reserved in a message for everything but header and body: services accept metadata of up
   * to 64 KiB.
   */
  static final int MOST_BESIDE_BYTES = 65 << 10;

  private final int partBytes;
  private long sentBytes;

  BatchSlicer(int maxMessageBytes) {
    int besideBytes = Math.min(MOST_BESIDE_BYTES, maxMessageBytes / 4);
    this.partBytes = Math.max(1, Math.min(MOST_PART_BYTES, (maxMessageBytes - besideBytes) / 2));
  }

  /** Reset for a new call, which starts with a whole batch. */
  void restart() {
    sentBytes = 0;
  }

  /** Return the next slice of a batch whose earlier slices were sent. */
  BatchSlice next(RequestBatch batch) {
    long bodyBytes = batch.bodyBytes();
    boolean fits = bodyBytes + batch.header().length <= 2L * partBytes;
    long start = sentBytes;
    long end = fits ? bodyBytes : Math.min(bodyBytes, start + partBytes);
    sentBytes = end == bodyBytes ? 0 : end;
    return new BatchSlice(batch, start, end);
  }
}
