// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.grpc.Metadata;
import io.grpc.Status;
import io.updraft.proto.v1.ExchangeCommand;
import io.updraft.proto.v1.Report;
import io.updraft.proto.v1.TaskIdentity;
import java.util.Collection;
import java.util.List;
import java.util.function.BooleanSupplier;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * One exchange with a pool: request batches go out within a window, reply batches come back in
 * order. Used by one task thread; only {@link #cancel} may be called from any thread.
 *
 * <p>The exchange recovers by itself where that is safe: a full or unreachable pool is asked again
 * before any work was done, and with {@link Replay#REPLAY} batches that were not answered move to
 * another worker. It starts no thread: the task's thread opens and recovers, gRPC's event loop
 * receives, and either sends what may be sent: a batch that waits for admission is not held up by a
 * task that is busy elsewhere.
 */
public final class Exchange implements AutoCloseable {
  /** The version of proto/README.md that this client speaks. */
  public static final int PROTOCOL_VERSION = 1;

  /** How long a close waits for the transport to give sent buffers back. */
  private static final long CLOSE_MILLISECONDS = 500;

  private final ClientOptions options;
  private final TaskIdentity task;
  private final ExchangeRequest request;
  private final Collection<? extends Artifact> artifacts;
  private final BufferAllocator allocator;
  private final WireAllocator wire;
  private final ExchangeCore core;
  private final CoreLock lock;
  private final BooleanSupplier replyFound = this::findReply;
  private ExchangeCall call;

  /** What {@link #findReply} has found. */
  private ReplyQueue.Entry found;

  /** Of commands and what was uploaded with them. */
  private long openingBytes;

  /** Of batches and last messages. */
  private long batchBytes;

  private boolean closed;

  private Exchange(
      ClientOptions options,
      ExchangeCommand command,
      Schema schema,
      BufferAllocator allocator,
      Replay replay,
      Collection<? extends Artifact> artifacts) {
    this.options = options;
    this.task = command.getTask();
    this.request = ExchangeRequest.of(command, schema);
    this.artifacts = artifacts;
    this.allocator = allocator;
    this.wire = new WireAllocator(allocator);
    this.core = new ExchangeCore(options, replay, System.nanoTime());
    this.lock = new CoreLock(core);
  }

  /**
   * Opens an exchange and returns at once; the first failure surfaces in {@link #send}, {@link
   * #poll} or {@link #take}.
   *
   * @param allocator holds the replies; request batches must come from its root
   * @throws IllegalArgumentException if the options' TLS files cannot be used
   */
  public static Exchange open(
      ClientOptions options,
      ExchangeCommand command,
      Schema schema,
      BufferAllocator allocator,
      Replay replay) {
    return open(options, command, schema, allocator, replay, List.of());
  }

  /**
   * Opens an exchange whose function needs artifacts; returns when the pool has them, and so does
   * every call of this class that moves the exchange to another worker. A large function is sent in
   * the same way.
   *
   * @param artifacts those that the command lists
   * @throws ExchangeException if an artifact cannot be read
   */
  public static Exchange open(
      ClientOptions options,
      ExchangeCommand command,
      Schema schema,
      BufferAllocator allocator,
      Replay replay,
      Collection<? extends Artifact> artifacts) {
    Exchange exchange = new Exchange(options, command, schema, allocator, replay, artifacts);
    try {
      exchange.startCall();
    } catch (RuntimeException e) {
      exchange.close();
      throw e;
    }
    return exchange;
  }

  /** Whether the window has room for one more batch. */
  public boolean hasRoom() {
    lock.lock();
    try {
      return core.hasRoom();
    } finally {
      lock.unlock();
    }
  }

  /**
   * Sends a batch and takes it over: the exchange closes it, also when it throws. Never blocks; a
   * large batch goes out when the pool has admitted the exchange, which is when it has a worker.
   * Once {@link Reply.Kind#END} has come, batches are dropped: the function wanted no more.
   *
   * @param rows the batch's rows
   * @throws IllegalArgumentException if the batch has another number of rows
   * @throws ExchangeException if the exchange already failed, or the batch is larger than a message
   *     may be
   * @throws IllegalStateException if the window has no room or the sending was finished
   */
  public void send(ArrowRecordBatch batch, int rows) {
    send(batch, rows, BatchGroups.NONE);
  }

  /**
   * The same for a function over groups.
   *
   * @param groups where the batch's groups end
   */
  public void send(ArrowRecordBatch batch, int rows, BatchGroups groups) {
    if (rows != batch.getLength()) {
      batch.close();
      throw new IllegalArgumentException(
          "a batch of " + batch.getLength() + " rows announced with " + rows);
    }
    RequestBatch taken = RequestBatch.takeOver(batch, groups, options.maxMessageBytes());
    boolean running;
    lock.lock();
    try {
      running = core.admit(taken);
      sendWhatMayBeSent();
    } finally {
      lock.unlock();
    }
    if (!running) {
      recoverIfDue();
    }
  }

  /** Says that every batch was sent. Idempotent. */
  public void finishSending() {
    lock.lock();
    try {
      core.finishSending();
      sendWhatMayBeSent();
    } finally {
      lock.unlock();
    }
  }

  /**
   * The next batch of results or the end, or null when there is none yet. Never blocks.
   *
   * @throws ExchangeException if the exchange failed; replies that came before are given out first
   */
  public Reply poll() {
    recoverIfDue();
    return credited(lock.read(core::next));
  }

  /**
   * The next batch of results, the end, or {@link Reply#ROOM} when a window that was full has
   * opened; waits for it.
   *
   * @throws ExchangeException if the exchange failed; replies that came before are given out first
   * @throws InterruptedException if the thread was interrupted; the exchange is still to be closed
   */
  public Reply take() throws InterruptedException {
    recoverIfDue();
    while (!lock.await(replyFound)) {
      startCall();
    }
    ReplyQueue.Entry entry = found;
    found = null;
    return credited(entry);
  }

  private boolean findReply() {
    found = core.nextOrRoom();
    return found != null;
  }

  /** Lets the pool send one more reply in place of the one that is handed out. */
  private static Reply credited(ReplyQueue.Entry entry) {
    if (entry == null) {
      return null;
    }
    if (entry.call() != null) {
      entry.call().request(1);
    }
    return entry.reply();
  }

  private void recoverIfDue() {
    if (isRecoveryDue()) {
      startCall();
    }
  }

  private boolean isRecoveryDue() {
    lock.lock();
    try {
      return core.isRecoveryDue(System.nanoTime());
    } finally {
      lock.unlock();
    }
  }

  private void startCall() {
    if (call != null) {
      call.leave("the exchange moves to another worker");
    }
    long remainingNanos = core.remainingNanos(System.nanoTime());
    ExchangeCall next = new ExchangeCall(options, task, allocator, wire, this, remainingNanos);
    lock.lock();
    try {
      call = next;
      if (!core.begin(next)) {
        return;
      }
    } finally {
      lock.unlock();
    }
    openingBytes +=
        next.start(request.command(), request.schemaHeader(), options.windowBatches() + 1);
    if (upload(next)) {
      opened(next);
    }
  }

  private void opened(ExchangeCall sent) {
    lock.lock();
    try {
      core.opened(sent, request.command().size(), System.nanoTime());
      sendWhatMayBeSent();
    } finally {
      lock.unlock();
    }
  }

  /** Only under the lock. */
  private void sendWhatMayBeSent() {
    for (ExchangeCore.Step step = core.nextToSend(); step != null; step = core.nextToSend()) {
      batchBytes += step.batch() == null ? call.finish() : call.send(step.batch());
    }
  }

  /** Sends what the pool asks for before the first batch; false when the call was lost. */
  private boolean upload(ExchangeCall to) {
    if (request.deferredPayload().isEmpty() && artifacts.isEmpty()) {
      return true;
    }
    ArtifactUpload upload =
        new ArtifactUpload(
            request.deferredPayload(), artifacts, core, lock, to, options.maxMessageBytes());
    try {
      return upload.run();
    } catch (InterruptedException e) {
      cancel("the task's thread was interrupted");
      Thread.currentThread().interrupt();
      return false;
    } finally {
      openingBytes += upload.bytesSent();
    }
  }

  /** The call has reached the wire, or takes more after it was full: other waits apply now. */
  void onReady() {
    lock.run(() -> {});
  }

  /** A message of a call, in order; a batch in the event is the exchange's from now on. */
  void onEvent(ExchangeCall from, ReplyEvent event, long consumedInCall, int sizeBytes)
      throws MalformedReplyException {
    lock.lock();
    try {
      core.onEvent(from, event, consumedInCall, sizeBytes, System.nanoTime());
      if (event instanceof ReplyEvent.Admitted) {
        sendWhatMayBeSent();
      }
      lock.wake();
    } finally {
      lock.unlock();
    }
  }

  void onBroken(ExchangeCall from, Failure broken) {
    lock.run(() -> core.onBroken(from, broken));
  }

  void onClosed(ExchangeCall from, Status status, Metadata trailers) {
    lock.run(() -> core.onClosed(from, status, trailers, System.nanoTime()));
  }

  /** The schema of the results; null until the pool has sent it. */
  public Schema resultSchema() {
    return lock.read(core::resultSchema);
  }

  /**
   * What the worker measured.
   *
   * @throws IllegalStateException before {@link Reply.Kind#END}
   */
  public Report report() {
    return lock.read(core::report);
  }

  /** Bytes of request messages, those sent again included. */
  public long bytesSent() {
    return openingBytes + lock.read(() -> batchBytes);
  }

  /** Bytes of reply messages. */
  public long bytesReceived() {
    return lock.read(core::bytesReceived);
  }

  /**
   * Ends the exchange; a waiting task thread wakes with the reason. Idempotent, from any thread.
   */
  public void cancel(String reason) {
    ExchangeCall open;
    lock.lock();
    try {
      open = core.cancel(reason) ? call : null;
      lock.wake();
    } finally {
      lock.unlock();
    }
    if (open != null) {
      open.cancel(reason);
    }
  }

  /**
   * Releases everything; cancels an exchange that has not finished. Afterwards nothing of it is
   * allocated in the task's allocator. Idempotent.
   */
  @Override
  public void close() {
    if (closed) {
      return;
    }
    closed = true;
    lock.run(core::close);
    if (call != null) {
      call.close("the task closed the exchange");
    }
    wire.close();
    wire.awaitEmpty(CLOSE_MILLISECONDS);
  }
}
