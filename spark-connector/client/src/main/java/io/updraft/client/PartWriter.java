// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import static java.util.concurrent.TimeUnit.NANOSECONDS;

import io.netty.util.concurrent.DefaultThreadFactory;
import java.io.IOException;
import java.util.ArrayDeque;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.arrow.memory.ArrowBuf;

/**
 * Queue that passes the parts of one returned file from gRPC's event loop to the file's {@link
 * PartSink}, in order, on a thread that may block. The task's own thread cannot store parts,
 * because it may be busy for a long time and the writer does not wait for it. The number of
 * messages requested from gRPC bounds the queue.
 */
final class PartWriter implements AutoCloseable {
  /** Listener for each part, called on the thread that stores it. */
  interface Owner {
    /** Handle a stored part. */
    void onStored(int bytes);

    /** Handle a failure of the sink. No more parts are stored. */
    void onFailed(Throwable failure);
  }

  private static final long LONGEST_CLOSE_MILLISECONDS = 30_000;

  /** Threads for all files; an idle thread ends. */
  private static final ExecutorService THREADS =
      Executors.newCachedThreadPool(new DefaultThreadFactory("updraft-file-parts", true));

  private final PartSink sink;
  private final Owner owner;
  private final ArrayDeque<ArrowBuf> parts = new ArrayDeque<>();
  private boolean running;
  private boolean closed;

  PartWriter(PartSink sink, Owner owner) {
    this.sink = sink;
    this.owner = owner;
  }

  /** Take over a reference to a part. */
  synchronized void add(ArrowBuf part) {
    if (closed) {
      part.close();
      return;
    }
    parts.add(part);
    if (!running) {
      THREADS.execute(this::storeAll);
      running = true;
    }
  }

  private void storeAll() {
    for (ArrowBuf part = next(); part != null; part = next()) {
      store(part);
    }
  }

  private void store(ArrowBuf part) {
    try (part) {
      int bytes = (int) part.readableBytes();
      sink.append(part.nioBuffer(part.readerIndex(), bytes));
      owner.onStored(bytes);
    } catch (IOException | RuntimeException | Error e) {
      // Catch Error too: without this report, the task would wait for its parts forever.
      drop();
      owner.onFailed(e);
    }
  }

  private synchronized ArrowBuf next() {
    ArrowBuf part = parts.poll();
    if (part == null) {
      running = false;
      notifyAll();
    }
    return part;
  }

  private synchronized void drop() {
    closed = true;
    for (ArrowBuf part = parts.poll(); part != null; part = parts.poll()) {
      part.close();
    }
  }

  /** Drop the parts that are not stored and wait until the sink is no longer in use. */
  @Override
  public synchronized void close() {
    drop();
    BoundedWait.await(
        () -> !running, LONGEST_CLOSE_MILLISECONDS, nanos -> NANOSECONDS.timedWait(this, nanos));
  }
}
