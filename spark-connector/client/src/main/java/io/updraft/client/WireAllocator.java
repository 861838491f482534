// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import static java.util.concurrent.TimeUnit.NANOSECONDS;

import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;

/**
 * Holds what the transport still has to send of one exchange, apart from the task's allocator: a
 * peer that has stopped reading can keep a few bytes in the socket's queue long after the task has
 * ended, and must not look like a leak of the task.
 */
final class WireAllocator {
  private final BufferAllocator allocator;
  private int buffers;
  private boolean closed;

  WireAllocator(BufferAllocator task) {
    this.allocator = task.getRoot().newChildAllocator("updraft-wire", 0, Long.MAX_VALUE);
  }

  /** Another reference to the memory of a buffer, which its user closes. */
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

  /** No buffer will be opened any more; the allocator closes with the last one. */
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

  /** Waits, at most so long, until the transport has given everything back. */
  synchronized void awaitEmpty(long milliseconds) {
    Patience.await(() -> buffers == 0, milliseconds, nanos -> NANOSECONDS.timedWait(this, nanos));
  }
}
