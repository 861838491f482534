// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

/** Cuts the batches of a call into slices of a message each: nearly always one. Not thread-safe. */
final class BatchSlicer {
  /** Parts cost little each, and leave room for others on the connection. */
  private static final int MOST_PART_BYTES = 16 << 20;

  /** Of a message beside its header and body: services take metadata of up to 64 KiB. */
  static final int MOST_BESIDE_BYTES = 65 << 10;

  private final int partBytes;
  private long sentBytes;

  BatchSlicer(int maxMessageBytes) {
    int besideBytes = Math.min(MOST_BESIDE_BYTES, maxMessageBytes / 4);
    this.partBytes = Math.max(1, Math.min(MOST_PART_BYTES, (maxMessageBytes - besideBytes) / 2));
  }

  /** A new call begins with a whole batch. */
  void restart() {
    sentBytes = 0;
  }

  /** The next slice of a batch, of which the slices before were sent. */
  BatchSlice next(RequestBatch batch) {
    long bodyBytes = batch.bodyBytes();
    boolean fits = bodyBytes + batch.header().length <= 2L * partBytes;
    long start = sentBytes;
    long end = fits ? bodyBytes : Math.min(bodyBytes, start + partBytes);
    sentBytes = end == bodyBytes ? 0 : end;
    return new BatchSlice(batch, start, end);
  }
}
