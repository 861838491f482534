// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.CompositeByteBuf;
import io.netty.buffer.PooledByteBufAllocator;
import io.netty.buffer.Unpooled;
import java.util.ArrayList;
import java.util.List;
import org.apache.arrow.memory.ArrowBuf;

/**
 * Bytes of one FlightData with a large body: a prefix and, uncopied, the Arrow buffers of a batch.
 * The references to these buffers are released once, when the transport has sent or dropped the
 * last byte.
 */
final class WireBuffer extends CompositeByteBuf {
  private static final ByteBuf PADDING =
      Unpooled.unreleasableBuffer(Unpooled.directBuffer(8).writeZero(8).asReadOnly());

  private final WireAllocator allocator;
  private final List<ArrowBuf> references = new ArrayList<>();

  WireBuffer(WireAllocator allocator, ByteBuf prefix, int bodyBuffers) {
    super(PooledByteBufAllocator.DEFAULT, true, 2 * bodyBuffers + 2);
    this.allocator = allocator;
    allocator.opened();
    addComponent(true, prefix);
  }

  /** Append bytes of an Arrow buffer. */
  void addBody(ArrowBuf buffer, long index, int length) {
    ArrowBuf reference = allocator.reference(buffer);
    references.add(reference);
    long start = index - buffer.readerIndex();
    addComponent(true, Unpooled.wrappedBuffer(reference.nioBuffer(start, length)));
  }

  /** Append fewer than 8 zero bytes. */
  void addPadding(int bytes) {
    if (bytes > 0) {
      addComponent(true, PADDING.slice(0, bytes));
    }
  }

  @Override
  protected void deallocate() {
    super.deallocate();
    references.forEach(ArrowBuf::close);
    allocator.released();
  }
}
