// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import static java.util.concurrent.TimeUnit.NANOSECONDS;

import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;

/**
 * Allocator for the bytes of one exchange that the transport still has to send, separate from the
 * task's allocator: a peer that has stopped reading can keep a few bytes in the socket's queue long
 * after the task has ended, and this must not look like a leak of the task.
 */
final class WireAllocator {
  private final BufferAllocator allocator;
  private int buffers;
  private boolean closed;

  WireAllocator(BufferAllocator task) {
    this.allocator = task.getRoot().newChildAllocator("updraft-wire", 0, Long.MAX_VALUE);
  }

  /** Return another reference to a buffer's memory, which the user of the reference closes. */
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

  /** Declare that no more buffers will be opened; the allocator closes with the last open one. */
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

  /** Wait, at most this long, until the transport has released everything. */
  synchronized void awaitEmpty(long milliseconds) {
    BoundedWait.await(
        () -> buffers == 0, milliseconds, nanos -> NANOSECONDS.timedWait(this, nanos));
  }
}
