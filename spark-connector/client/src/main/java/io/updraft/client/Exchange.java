// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import com.google.protobuf.ByteString;
import io.updraft.proto.v1.DeferredPayload;
import io.updraft.proto.v1.ExchangeCommand;
import io.updraft.proto.v1.Report;
import io.updraft.proto.v1.TaskIdentity;
import java.util.Collection;
import java.util.List;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.IpcOption;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * One exchange with a pool: request batches go out within a window, reply batches come back in
 * order. Used by one task thread; only {@link #cancel} may be called from any thread.
 *
 * <p>The exchange recovers by itself where that is safe: a full or unreachable pool is asked again
 * before any work was done, and with {@link Replay#REPLAY} batches that were not answered move to
 * another worker. It starts no thread: the task's thread sends and recovers, gRPC's event loop
 * receives.
 */
public final class Exchange implements AutoCloseable {
  /** The version of proto/README.md that this client speaks. */
  public static final int PROTOCOL_VERSION = 1;

  /**
   * The most that is sent before the pool has admitted the exchange, so that a refusal wastes
   * little.
   */
  static final int BYTES_BEFORE_ADMISSION = 64 << 10;

  /** How long a close waits for the transport to give sent buffers back. */
  private static final long CLOSE_MILLISECONDS = 500;

  private final ClientOptions options;
  private final TaskIdentity task;
  private final ByteString command;
  private final ByteString deferredPayload;
  private final byte[] schemaHeader;
  private final Collection<? extends Content> contents;
  private final BufferAllocator allocator;
  private final WireAllocator wire;
  private final ExchangeState state;
  private final long openedNanos = System.nanoTime();
  private Attempt attempt;

  /** Of commands and what was uploaded with them. */
  private long bytesSent;

  private boolean closed;

  private Exchange(
      ClientOptions options,
      ExchangeCommand command,
      Schema schema,
      BufferAllocator allocator,
      Replay replay,
      Collection<? extends Content> contents) {
    this.options = options;
    this.task = command.getTask();
    boolean large = command.getSerializedSize() > BYTES_BEFORE_ADMISSION;
    boolean deferred = large && command.hasSession() && !command.getPayload().isEmpty();
    this.deferredPayload = deferred ? command.getPayload() : ByteString.EMPTY;
    this.command = (deferred ? withoutPayload(command) : command).toByteString();
    this.schemaHeader =
        RequestBatch.bytes(MessageSerializer.serializeMetadata(schema, IpcOption.DEFAULT));
    this.contents = contents;
    this.allocator = allocator;
    this.wire = new WireAllocator(allocator);
    this.state = new ExchangeState(options, replay);
  }

  private static ExchangeCommand withoutPayload(ExchangeCommand command) {
    return command.toBuilder()
        .clearPayload()
        .setDeferredPayload(DeferredPayload.newBuilder().setSizeBytes(command.getPayload().size()))
        .build();
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
   * Opens an exchange whose function needs contents; returns when the pool has them, and so does
   * every call of this class that moves the exchange to another worker. A large function is sent in
   * the same way.
   *
   * @param contents those that the command lists
   * @throws ExchangeException if a content cannot be read
   */
  public static Exchange open(
      ClientOptions options,
      ExchangeCommand command,
      Schema schema,
      BufferAllocator allocator,
      Replay replay,
      Collection<? extends Content> contents) {
    Exchange exchange = new Exchange(options, command, schema, allocator, replay, contents);
    try {
      exchange.startAttempt();
    } catch (RuntimeException e) {
      exchange.close();
      throw e;
    }
    return exchange;
  }

  /** Whether the window has room for one more batch. */
  public boolean hasRoom() {
    return state.hasRoom();
  }

  /**
   * Sends a batch and takes it over: the exchange closes it, also when it throws. Never blocks; a
   * large batch goes out when the pool has admitted the exchange, which is when it has a worker.
   * Once {@link Reply.Kind#END} has come, batches are dropped: the function wanted no more.
   *
   * @param rows the batch's rows
   * @throws ExchangeException if the exchange already failed, or the batch is larger than a message
   *     may be
   * @throws IllegalStateException if the window has no room or the sending was finished
   */
  public void send(ArrowRecordBatch batch, int rows) {
    send(batch, rows, BatchGroups.NONE);
  }

  /** The same for a function over groups. */
  public void send(ArrowRecordBatch batch, int rows, BatchGroups groups) {
    RequestBatch request = takeOver(batch, rows, groups);
    boolean open;
    try {
      open = state.admit(request);
    } catch (RuntimeException e) {
      request.close();
      throw e;
    }
    if (open) {
      state.sendWhatMayBeSent();
    } else {
      recoverIfDue();
    }
  }

  private RequestBatch takeOver(ArrowRecordBatch batch, int rows, BatchGroups groups) {
    try {
      if (rows != batch.getLength()) {
        throw new IllegalArgumentException(
            "a batch of " + batch.getLength() + " rows announced with " + rows);
      }
      RequestBatch request = new RequestBatch(batch, groups);
      if (request.bodyBytes() + request.header().length > options.maxMessageBytes()) {
        throw Failure.tooLarge(request.bodyBytes(), options.maxMessageBytes()).toException();
      }
      return request;
    } catch (RuntimeException e) {
      batch.close();
      throw e;
    }
  }

  /** Says that every batch was sent. Idempotent. */
  public void finishSending() {
    state.finishSending();
  }

  /**
   * The next batch of results or the end, or null when there is none yet. Never blocks.
   *
   * @throws ExchangeException if the exchange failed; replies that came before are given out first
   */
  public Reply poll() {
    recoverIfDue();
    return credited(state.poll());
  }

  /**
   * The next batch of results, the end, or {@link Reply#ROOM} when a window that was full has
   * opened; waits for it.
   *
   * @throws ExchangeException if the exchange failed; replies that came before are given out first
   * @throws InterruptedException if the thread was interrupted; the exchange is still to be closed
   */
  public Reply take() throws InterruptedException {
    while (true) {
      recoverIfDue();
      ReplyQueue.Entry entry = state.awaitReply();
      if (entry != null) {
        return credited(entry);
      }
    }
  }

  /** Lets the pool send one more reply in place of the one that is handed out. */
  private static Reply credited(ReplyQueue.Entry entry) {
    if (entry == null) {
      return null;
    }
    if (entry.attempt() != null) {
      entry.attempt().request(1);
    }
    return entry.reply();
  }

  private void recoverIfDue() {
    if (state.isRecoveryDue()) {
      startAttempt();
    }
  }

  /** Until the exchange's deadline; zero when it has none. */
  private long remainingNanos() {
    if (options.deadline().isZero()) {
      return 0;
    }
    return Math.max(1, options.deadline().toNanos() - (System.nanoTime() - openedNanos));
  }

  private void startAttempt() {
    if (attempt != null) {
      attempt.leave("the exchange moves to another worker");
    }
    attempt = new Attempt(options, task, allocator, wire, state, state.base(), remainingNanos());
    if (!state.begin(attempt)) {
      return;
    }
    bytesSent += attempt.start(command, schemaHeader, options.windowBatches() + 1);
    if (upload()) {
      state.opened(attempt, command.size());
    }
  }

  /** Sends what the pool asks for before the first batch; false when the call was lost. */
  private boolean upload() {
    if (deferredPayload.isEmpty() && contents.isEmpty()) {
      return true;
    }
    ContentUpload upload =
        new ContentUpload(deferredPayload, contents, state, attempt, options.maxMessageBytes());
    try {
      return upload.run();
    } catch (InterruptedException e) {
      cancel("the task's thread was interrupted");
      Thread.currentThread().interrupt();
      return false;
    } finally {
      bytesSent += upload.bytesSent();
    }
  }

  /** The schema of the results; null until the pool has sent it. */
  public Schema resultSchema() {
    return state.resultSchema();
  }

  /**
   * What the worker measured.
   *
   * @throws IllegalStateException before {@link Reply.Kind#END}
   */
  public Report report() {
    return state.report();
  }

  /** Bytes of request messages, those sent again included. */
  public long bytesSent() {
    return bytesSent + state.bytesSent();
  }

  /** Bytes of reply messages. */
  public long bytesReceived() {
    return state.bytesReceived();
  }

  /**
   * Ends the exchange; a waiting task thread wakes with the reason. Idempotent, from any thread.
   */
  public void cancel(String reason) {
    Attempt open = state.cancel(reason);
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
    state.close();
    if (attempt != null) {
      attempt.close("the task closed the exchange");
    }
    wire.close();
    wire.awaitEmpty(CLOSE_MILLISECONDS);
  }
}
