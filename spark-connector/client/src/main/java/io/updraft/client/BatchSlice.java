// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.netty.buffer.ByteBuf;
import io.updraft.proto.v1.BatchPart;

/**
 * What one message has of a batch: all of it, or a part of its body. The last part comes with the
 * batch's IPC metadata.
 *
 * @param startByte of the body, inclusive
 * @param endByte of the body, exclusive
 */
record BatchSlice(RequestBatch batch, long startByte, long endByte) {
  private static final byte[] NOTHING = {};

  /** Whether the message completes the batch. */
  boolean isLast() {
    return endByte == batch.bodyBytes();
  }

  /** IPC metadata of the batch; empty before the last part. */
  byte[] header() {
    return isLast() ? batch.header() : NOTHING;
  }

  int bodyBytes() {
    return Math.toIntExact(endByte - startByte);
  }

  /** Where the slice is, as it is said of a part that is not the last. */
  BatchPart part() {
    return BatchPart.newBuilder().setBodyBytes(batch.bodyBytes()).setOffset(startByte).build();
  }

  /**
   * A message of the prefix and this slice.
   *
   * @return null when the batch was closed: its exchange is over, and so is the call that asks
   */
  ByteBuf message(WireAllocator allocator, ByteBuf prefix) {
    return batch.message(allocator, prefix, startByte, endByte);
  }
}
