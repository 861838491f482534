// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import com.google.protobuf.ByteString;
import io.grpc.Metadata;
import io.grpc.Status;
import io.updraft.proto.v1.Pace;
import io.updraft.proto.v1.Receipt;
import io.updraft.proto.v1.TaskIdentity;
import io.updraft.proto.v1.WriteCommand;
import io.updraft.proto.v1.WriteReplyMetadata;
import java.util.function.BooleanSupplier;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * One file that a writer writes for us: batches go out as the writer gives credit, a receipt comes
 * back. Used by one task thread; only {@link #cancel} may be called from any thread.
 *
 * <p>The shell of {@link FileCore}, as {@link Exchange} is that of its core. The task thread hands
 * batches over and waits; gRPC's event loop sends them when credit comes, so that none is held up
 * by a task that is busy elsewhere.
 */
public final class FileExchange implements AutoCloseable {
  /** Messages that the writer may send before they were handled: credit, parts, the last word. */
  private static final int REPLIES_AHEAD = 4;

  /** How long the end of a file that was given up is waited for. */
  private static final long ABORT_MILLISECONDS = 5_000;

  private static final long CLOSE_MILLISECONDS = 500;

  private final ClientOptions options;
  private final TaskIdentity task;
  private final Pace pace;
  private final ByteString command;
  private final byte[] schemaHeader;
  private final BufferAllocator allocator;
  private final WireAllocator wire;
  private final FileCore core;
  private final CoreLock lock;
  private final PartWriter parts;
  private volatile FileCall call;
  private long waitedNanos;
  private boolean closed;

  private FileExchange(
      ClientOptions options,
      WriteCommand command,
      Schema schema,
      BufferAllocator allocator,
      PartSink sink) {
    this.options = options;
    this.task = command.getTask();
    this.pace = command.getPace();
    this.command = command.toByteString();
    this.schemaHeader = RequestBatch.header(schema);
    this.allocator = allocator;
    this.wire = new WireAllocator(allocator);
    this.core = new FileCore(options, command.getDelivery(), System.nanoTime());
    this.lock = new CoreLock(core);
    this.parts = new PartWriter(sink, new StoredParts());
  }

  /**
   * Opens a file and returns at once; the first failure surfaces in {@link #send} or {@link
   * #finish}.
   *
   * @param allocator holds what comes back; batches must come from its root
   * @param sink where the bytes of a returned file go; with direct delivery it gets none
   * @throws IllegalArgumentException if the options' TLS files cannot be used
   */
  public static FileExchange open(
      ClientOptions options,
      WriteCommand command,
      Schema schema,
      BufferAllocator allocator,
      PartSink sink) {
    FileExchange file = new FileExchange(options, command, schema, allocator, sink);
    try {
      file.startCall();
    } catch (RuntimeException e) {
      file.close();
      throw e;
    }
    return file;
  }

  /**
   * Sends a batch and takes it over: it is closed, also when this throws. Waits while more bytes
   * than the window's are here, and with a synchronous pace until the batch is stored.
   *
   * @throws ExchangeException if the file has failed, or the batch is larger than a message may be
   * @throws InterruptedException if the thread was interrupted; the file is still to be closed
   */
  public void send(ArrowRecordBatch batch) throws InterruptedException {
    RequestBatch request =
        RequestBatch.takeOver(batch, BatchGroups.NONE, options.maxMessageBytes());
    boolean admitted = false;
    try {
      await(() -> core.hasRoom(request.bodyBytes()));
      admitted = true;
      locked(() -> core.admit(request));
    } finally {
      if (!admitted) {
        request.close();
      }
    }
    if (pace == Pace.PACE_SYNCHRONOUS) {
      await(core::isStored);
    }
  }

  /**
   * Says that every batch was sent and waits for the receipt.
   *
   * @throws ExchangeException if the file has failed; the message says when the writer may have
   *     published it all the same
   * @throws InterruptedException if the thread was interrupted; the file is still to be closed
   */
  public Receipt finish() throws InterruptedException {
    locked(core::finishSending);
    await(core::isWhole);
    return lock.read(core::receipt);
  }

  /** Gives the file up and waits, for a bounded time, until the writer has let go of it. */
  public void abort(String reason) {
    boolean interrupted;
    lock.lock();
    try {
      FileCore.Step step = core.abort(reason);
      if (step != null) {
        send(step);
      }
      boolean awaited = call.connected() && (step != null || core.hasError());
      interrupted = awaited && lock.awaitUninterruptibly(call::ended, ABORT_MILLISECONDS);
    } finally {
      lock.unlock();
    }
    close();
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
  }

  /** Time that the task has waited for the writer. */
  public long waitedNanos() {
    return waitedNanos;
  }

  private void await(BooleanSupplier condition) throws InterruptedException {
    long startedNanos = System.nanoTime();
    try {
      while (!lock.await(condition)) {
        startCall();
      }
    } finally {
      waitedNanos += System.nanoTime() - startedNanos;
    }
  }

  private void startCall() {
    if (call != null) {
      call.leave("the file is opened again");
    }
    long remainingNanos = core.remainingNanos(System.nanoTime());
    FileCall next = new FileCall(options, task, allocator, this, remainingNanos);
    lock.lock();
    try {
      call = next;
      if (!core.begin(next)) {
        return;
      }
    } finally {
      lock.unlock();
    }
    next.start(command, schemaHeader, REPLIES_AHEAD);
    locked(core::opened);
  }

  /** Runs an action, sends what may be sent after it and lets the task thread look again. */
  private void locked(Runnable action) {
    lock.lock();
    try {
      action.run();
      sendWhatMayBeSent();
      lock.wake();
    } finally {
      lock.unlock();
    }
  }

  private void sendWhatMayBeSent() {
    for (FileCore.Step step = nextToSend(); step != null; step = nextToSend()) {
      send(step);
    }
  }

  private FileCore.Step nextToSend() {
    return core.nextToSend(call != null && call.isReady());
  }

  private void send(FileCore.Step step) {
    if (step.batch() == null) {
      call.send(OutgoingMessage.of(step.metadata()));
    } else {
      // The transport keeps references of its own to what it has not written yet.
      try (RequestBatch batch = step.batch()) {
        call.send(OutgoingMessage.batch(batch, step.metadata(), wire));
      }
    }
    if (step.last()) {
      call.halfClose();
    }
  }

  void onReady() {
    locked(() -> {});
  }

  /** Takes a message of a call; true when a part of the file in it waits to be stored. */
  boolean onReply(FileCall from, WriteReplyMetadata reply, ArrowBuf body)
      throws MalformedReplyException {
    lock.lock();
    try {
      boolean part = core.onReply(from, reply, body.readableBytes(), System.nanoTime());
      if (part) {
        body.getReferenceManager().retain();
        parts.add(body);
      }
      sendWhatMayBeSent();
      lock.wake();
      return part;
    } finally {
      lock.unlock();
    }
  }

  void onBroken(FileCall from, Failure broken) {
    locked(() -> core.onBroken(from, broken));
  }

  void onClosed(FileCall from, Status status, Metadata trailers) {
    locked(() -> core.onClosed(from, status, trailers, System.nanoTime()));
  }

  /**
   * Ends the file without a receipt; a waiting task thread wakes with the reason, to {@link #abort}
   * or {@link #close} it. Idempotent.
   */
  public void cancel(String reason) {
    fail(Failure.cancelled(reason));
  }

  private void fail(Failure failure) {
    locked(() -> core.fail(failure));
  }

  /**
   * Releases everything; cancels a file that has not finished. Afterwards nothing of it is
   * allocated in the task's allocator. Idempotent.
   */
  @Override
  public void close() {
    if (closed) {
      return;
    }
    closed = true;
    locked(core::close);
    if (call != null) {
      call.close("the task closed the file");
    }
    parts.close();
    wire.close();
    wire.awaitEmpty(CLOSE_MILLISECONDS);
  }

  private final class StoredParts implements PartWriter.Owner {
    @Override
    public void onStored(int bytes) {
      locked(() -> core.onStored(bytes, System.nanoTime()));
      call.request(1);
    }

    @Override
    public void onFailed(Exception failure) {
      fail(Failure.notKept(failure));
    }
  }
}
