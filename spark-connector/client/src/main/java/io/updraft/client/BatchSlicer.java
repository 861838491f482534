// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.netty.buffer.ByteBuf;
import io.updraft.proto.v1.BatchPart;

/**
 * Slicer that cuts the batches of a call into slices. Each slice goes into one message, and nearly
 * every batch is a single slice. Not thread-safe.
 */
final class BatchSlicer {
  /**
   * Size limit of a part. Splitting costs little, and other exchanges can use the connection
   * between two parts.
   */
  private static final int MOST_PART_BYTES = 16 << 20;

  /**
   * Bytes reserved in a message for everything except header and body. Services accept metadata of
   * up to 64 KiB.
   */
  static final int MOST_BESIDE_BYTES = 65 << 10;

  /**
   * Slice of a batch that goes into one message: all of the batch, or a part of its body. The last
   * slice carries the batch's IPC metadata.
   *
   * @param startByte first byte of the slice in the body, inclusive
   * @param endByte end of the slice in the body, exclusive
   */
  record Slice(RequestBatch batch, long startByte, long endByte) {
    private static final byte[] NOTHING = {};

    /** Return whether this slice completes the batch. */
    boolean isLast() {
      return endByte == batch.bodyBytes();
    }

    /** Return the IPC metadata of the batch; empty before the last slice. */
    byte[] header() {
      return isLast() ? batch.header() : NOTHING;
    }

    int bodyBytes() {
      return Math.toIntExact(endByte - startByte);
    }

    /** Return the position of this slice, for the metadata of a part that is not the last. */
    BatchPart part() {
      return BatchPart.newBuilder().setBodyBytes(batch.bodyBytes()).setOffset(startByte).build();
    }

    /**
     * Return a message made of the prefix and this slice.
     *
     * @return the message; null if the batch was closed. A closed batch means that its exchange is
     *     over, so no call needs the message
     */
    ByteBuf message(WireAllocator allocator, ByteBuf prefix) {
      return batch.message(allocator, prefix, startByte, endByte);
    }
  }

  private final int partBytes;
  private long sentBytes;

  BatchSlicer(int maxMessageBytes) {
    int besideBytes = Math.min(MOST_BESIDE_BYTES, maxMessageBytes / 4);
    this.partBytes = Math.max(1, Math.min(MOST_PART_BYTES, (maxMessageBytes - besideBytes) / 2));
  }

  /** Reset for a new call, which starts at the first byte of a batch. */
  void restart() {
    sentBytes = 0;
  }

  /** Return the next slice of a batch whose earlier slices were sent. */
  Slice next(RequestBatch batch) {
    long bodyBytes = batch.bodyBytes();
    boolean fits = bodyBytes + batch.header().length <= 2L * partBytes;
    long start = sentBytes;
    long end = fits ? bodyBytes : Math.min(bodyBytes, start + partBytes);
    sentBytes = end == bodyBytes ? 0 : end;
    return new Slice(batch, start, end);
  }
}
