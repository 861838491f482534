// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.netty.buffer.ByteBuf;
import io.updraft.proto.v1.BatchPart;

/**
 * Slice of a batch that goes into one message: all of the batch, or a part of its body. The last
 * slice carries the batch's IPC metadata.
 *
 * @param startByte first byte of the slice in the body, inclusive
 * @param endByte end of the slice in the body, exclusive
 */
record BatchSlice(RequestBatch batch, long startByte, long endByte) {
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
   * @return the message; null if the batch was closed, because then its exchange is over and no
   *     call needs the message
   */
  ByteBuf message(WireAllocator allocator, ByteBuf prefix) {
    return batch.message(allocator, prefix, startByte, endByte);
  }
}
