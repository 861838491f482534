// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.updraft.proto.v1.ExchangeCommand;
import io.updraft.proto.v1.KeepAlive;
import io.updraft.proto.v1.Report;
import io.updraft.proto.v1.RequestMetadata;
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
 * before any work was done, and batches move to another worker as far as {@link Replay} allows. It
 * starts no thread: the task's thread opens and recovers, gRPC's event loop receives, and either
 * sends what may be sent: a batch that waits for admission is not held up by a task that is busy
 * elsewhere.
 */
public final class Exchange extends CallShell<ExchangeCore> {
  /** The version of proto/README.md that this client speaks. */
  public static final int PROTOCOL_VERSION = 1;

  private final ExchangeRequest request;
  private final Collection<? extends Artifact> artifacts;
  private final BooleanSupplier replyFound = this::findReply;

  /** What {@link #findReply} has found. */
  private ReplyQueue.Entry found;

  /** Bytes of commands and of what was uploaded with them. */
  private long openingBytes;

  private Exchange(
      ClientOptions options,
      TaskIdentity task,
      ExchangeRequest request,
      BufferAllocator allocator,
      Replay replay,
      Collection<? extends Artifact> artifacts) {
    super(options, task, allocator, new ExchangeCore(options, replay, System.nanoTime()));
    this.request = request;
    this.artifacts = artifacts;
  }

  /**
   * Opens an exchange and returns at once; the first failure surfaces in {@link #send}, {@link
   * #poll} or {@link #take}.
   *
   * @param allocator holds the replies; request batches must come from its root
   * @throws IllegalArgumentException if the options' TLS files or token file cannot be used
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
    ExchangeRequest request = ExchangeRequest.of(command, schema, options);
    return opened(new Exchange(options, command.getTask(), request, allocator, replay, artifacts));
  }

  /** The {@code data_header} of the first message of an exchange with this schema. */
  public static byte[] schemaHeader(Schema schema) {
    return RequestBatch.header(schema);
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
   * @throws ExchangeException if the exchange already failed, or the batch is larger than {@link
   *     ClientOptions#maxBatchBytes}
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
    RequestBatch taken = RequestBatch.takeOver(batch, groups, options);
    boolean running;
    lock.lock();
    try {
      running = core.admit(taken);
      advance();
    } finally {
      lock.unlock();
    }
    if (!running) {
      recoverIfDue();
    }
  }

  /** Says that every batch was sent. Idempotent. */
  public void finishSending() {
    locked(core::finishSending);
  }

  /**
   * The next batch of results or the end, or null when there is none yet. Never blocks.
   *
   * @throws ExchangeException if the exchange failed; replies that came before are given out first
   */
  public Reply poll() {
    recoverIfDue();
    return credited(read(core::next));
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
    await(replyFound);
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

  @Override
  FlightCall newCall() {
    return new PoolCall();
  }

  @Override
  void start(FlightCall next) {
    openingBytes +=
        next.start(request.command(), request.schemaHeader(), options.windowBatches() + 1);
    if (upload(next)) {
      locked(() -> core.opened(request.command().size(), System.nanoTime()));
    }
  }

  @Override
  CallCore.Step<?> nextToSend() {
    return core.nextToSend();
  }

  /** Sends what the pool asks for before the first batch; false when the call was lost. */
  private boolean upload(FlightCall to) {
    if (request.deferredPayload().isEmpty() && artifacts.isEmpty()) {
      return true;
    }
    ArtifactUpload upload = new ArtifactUpload(request.deferredPayload(), artifacts, this, to);
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

  /** The schema of the results; null until the pool has sent it. */
  public Schema resultSchema() {
    return read(core::resultSchema);
  }

  /**
   * What the worker measured.
   *
   * @throws IllegalStateException before {@link Reply.Kind#END}
   */
  public Report report() {
    return read(core::report);
  }

  /** Bytes of request messages, those sent again included. */
  public long bytesSent() {
    return openingBytes + sentBytes();
  }

  /** Bytes of reply messages. */
  public long bytesReceived() {
    return read(core::bytesReceived);
  }

  /**
   * How many times it was sent again to another worker, as {@link Replay} allows, after its worker
   * or connection was lost. A pool that is asked again because it was full or away does not count.
   */
  public int replays() {
    return read(core::replays);
  }

  /**
   * Ends the exchange; a waiting task thread wakes with the reason. Idempotent, from any thread.
   */
  public void cancel(String reason) {
    locked(() -> core.cancel(reason));
    call().cancel(reason);
  }

  /** One call of the exchange; {@link ReplyProtocol} checks the order of its replies. */
  private final class PoolCall extends ShellCall {
    private final ReplyProtocol protocol = new ReplyProtocol(options);

    @Override
    void onReady(boolean first) {
      // Only artifacts wait for it again: batches have a window of their own.
      if (first || protocol.state() == ReplyProtocol.State.INIT) {
        locked(() -> {});
      }
    }

    @Override
    boolean onMessage(IncomingMessage message) throws MalformedReplyException {
      ReplyEvent event = protocol.accept(message);
      lock.lock();
      try {
        core.onEvent(this, event, protocol.consumed(), message.sizeBytes(), System.nanoTime());
        advance();
      } finally {
        lock.unlock();
      }
      return !(event instanceof ReplyEvent.Batch || event instanceof ReplyEvent.Logged);
    }

    @Override
    void onReleased() {
      protocol.close();
    }

    @Override
    RequestMetadata keepAlive() {
      return RequestMetadata.newBuilder().setKeepAlive(KeepAlive.getDefaultInstance()).build();
    }
  }
}
