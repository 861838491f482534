// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.updraft.proto.v1.ExchangeCommand;
import io.updraft.proto.v1.Report;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * One exchange with a pool: request batches go out within a window, reply batches come back in
 * order. Used by one task thread; only {@link #cancel} may be called from any thread.
 */
public final class Exchange implements AutoCloseable {
  private Exchange() {}

  /**
   * Opens an exchange and returns at once; the first failure surfaces in {@link #send}, {@link
   * #poll} or {@link #take}.
   */
  public static Exchange open(
      ClientOptions options,
      ExchangeCommand command,
      Schema schema,
      BufferAllocator allocator,
      Replay replay) {
    throw new UnsupportedOperationException();
  }

  /** Whether the window has room for one more batch. */
  public boolean hasRoom() {
    throw new UnsupportedOperationException();
  }

  /**
   * Sends a batch and takes it over: the exchange closes it. Never blocks.
   *
   * @throws ExchangeException if the exchange already failed
   * @throws IllegalStateException if the window has no room
   */
  public void send(ArrowRecordBatch batch, int rows) {
    throw new UnsupportedOperationException();
  }

  /** Says that every batch was sent. */
  public void finishSending() {
    throw new UnsupportedOperationException();
  }

  /** The next reply, or null when there is none yet. Never blocks. */
  public Reply poll() {
    throw new UnsupportedOperationException();
  }

  /** The next reply; waits for it. */
  public Reply take() throws InterruptedException {
    throw new UnsupportedOperationException();
  }

  /** The schema of the results; null until the pool has sent it. */
  public Schema resultSchema() {
    throw new UnsupportedOperationException();
  }

  /** What the worker measured; only after {@link Reply.Kind#END}. */
  public Report report() {
    throw new UnsupportedOperationException();
  }

  /** Bytes of request messages. */
  public long bytesSent() {
    throw new UnsupportedOperationException();
  }

  /** Bytes of reply messages. */
  public long bytesReceived() {
    throw new UnsupportedOperationException();
  }

  /**
   * Ends the exchange; a waiting task thread wakes with the reason. Idempotent, from any thread.
   */
  public void cancel(String reason) {
    throw new UnsupportedOperationException();
  }

  /** Releases everything; cancels an exchange that has not finished. Idempotent. */
  @Override
  public void close() {
    throw new UnsupportedOperationException();
  }
}
