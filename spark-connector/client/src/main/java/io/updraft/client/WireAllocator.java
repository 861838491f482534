// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import static java.util.concurrent.TimeUnit.NANOSECONDS;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.CompositeByteBuf;
import io.netty.buffer.PooledByteBufAllocator;
import io.netty.buffer.Unpooled;
import java.util.ArrayList;
import java.util.List;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;

/**
 * Allocator for the bytes of one exchange that the transport still has to send. It is separate from
 * the task's allocator, because the socket's queue can hold a few bytes long after the task has
 * ended, if the peer stops reading. These bytes must not look like a leak of the task.
 */
final class WireAllocator {

  /**
   * Bytes of one FlightData with a large body: a prefix and, uncopied, the Arrow buffers of a
   * batch. The references to these buffers are released once, when the transport has sent or
   * dropped the last byte.
   */
  static final class WireBuffer extends CompositeByteBuf {
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

  private final BufferAllocator allocator;
  private int buffers;
  private boolean closed;

  WireAllocator(BufferAllocator task) {
    this.allocator = task.getRoot().newChildAllocator("updraft-wire", 0, Long.MAX_VALUE);
  }

  /** Return another reference to a buffer's memory. The caller closes the reference. */
  ArrowBuf reference(ArrowBuf buffer) {
    ArrowBuf reference = buffer.getReferenceManager().retain(buffer, allocator);
    return reference.readerIndex(buffer.readerIndex()).writerIndex(buffer.writerIndex()).slice();
  }

  synchronized void opened() {
    buffers++;
  }

  synchronized void released() {
    buffers--;
    closeWhenEmpty();
  }

  /**
   * Declare that no more buffers will be opened. The allocator closes when the last open buffer is
   * released.
   */
  synchronized void close() {
    if (!closed) {
      closed = true;
      closeWhenEmpty();
    }
  }

  private void closeWhenEmpty() {
    if (buffers == 0 && closed) {
      allocator.close();
      notifyAll();
    }
  }

  /** Wait at most this long until the transport has released everything. */
  synchronized void awaitEmpty(long milliseconds) {
    BoundedWait.await(
        () -> buffers == 0, milliseconds, nanos -> NANOSECONDS.timedWait(this, nanos));
  }
}
