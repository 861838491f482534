// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import com.google.protobuf.ByteString;
import com.google.protobuf.InvalidProtocolBufferException;
import io.updraft.proto.v1.KeepAlive;
import io.updraft.proto.v1.Pace;
import io.updraft.proto.v1.Receipt;
import io.updraft.proto.v1.WriteCommand;
import io.updraft.proto.v1.WriteReplyMetadata;
import io.updraft.proto.v1.WriteRequestMetadata;
import java.util.function.BooleanSupplier;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * File written by a remote writer: batches go out as the writer gives credit, and a receipt comes
 * back. Used by one task thread; only {@link #cancel} may be called from any thread.
 *
 * <p>The task's thread adds batches to the window and waits. gRPC's event loop sends the batches
 * when credit arrives, even while the task's thread is busy elsewhere. {@link FileCore} makes the
 * decisions.
 */
public final class FileExchange extends CallShell<FileCore> {
  /**
   * Number of messages (credit, parts, the receipt) that the writer may send ahead of this side's
   * handling.
   */
  private static final int REPLIES_AHEAD = 4;

  /** Longest time that an abort waits for the writer to end the call. */
  private static final long ABORT_MILLISECONDS = 5_000;

  private final Pace pace;
  private final ByteString command;
  private final byte[] schemaHeader;
  private final PartWriter parts;
  private long waitedNanos;

  private FileExchange(
      ClientOptions options,
      WriteCommand command,
      byte[] schemaHeader,
      BufferAllocator allocator,
      PartSink sink) {
    super(
        options,
        command.getTask(),
        allocator,
        new FileCore(options, command.getDelivery(), System.nanoTime()));
    this.pace = command.getPace();
    this.command = command.toByteString();
    this.schemaHeader = schemaHeader;
    this.parts = new PartWriter(sink, new StoredParts());
  }

  /**
   * Open a file and return at once. {@link #send} or {@link #finish} throws the first failure.
   *
   * @param allocator holds returned bytes; batches must come from its root
   * @param sink receives the bytes of a returned file; unused with direct delivery
   * @throws IllegalArgumentException if the options' TLS files or token file cannot be used
   */
  public static FileExchange open(
      ClientOptions options,
      WriteCommand command,
      Schema schema,
      BufferAllocator allocator,
      PartSink sink) {
    byte[] schemaHeader = RequestBatch.header(schema);
    return opened(new FileExchange(options, command, schemaHeader, allocator, sink));
  }

  /**
   * Send a batch and take it over: the exchange closes the batch, even if this method throws. Wait
   * while the window has no room for the batch. At a synchronous pace, wait until the batch is
   * stored.
   *
   * @throws ExchangeException if the file has failed, or the batch is larger than {@link
   *     ClientOptions#maxBatchBytes}
   * @throws InterruptedException if the thread was interrupted; the caller still has to close the
   *     file
   */
  public void send(ArrowRecordBatch batch) throws InterruptedException {
    RequestBatch request = RequestBatch.takeOver(batch, BatchGroups.NONE, options);
    try {
      awaitWriter(() -> core.hasRoom(request.bodyBytes()));
    } catch (InterruptedException | RuntimeException e) {
      request.close();
      throw e;
    }
    locked(() -> core.admit(request));
    if (pace == Pace.PACE_SYNCHRONOUS) {
      awaitWriter(core::isStored);
    }
  }

  /**
   * Announce that every batch was sent and wait for the receipt.
   *
   * @throws ExchangeException if the file has failed; the message says whether the writer may have
   *     published it anyway
   * @throws InterruptedException if the thread was interrupted; the caller still has to close the
   *     file
   */
  public Receipt finish() throws InterruptedException {
    locked(core::finishSending);
    awaitWriter(core::isWhole);
    return read(core::receipt);
  }

  /** Abandon the file and wait, for a bounded time, until the writer has released it. */
  public void abort(String reason) {
    lock.lock();
    try {
      CallCore.Step<?> step = core.abort(reason);
      if (step != null) {
        send(step);
      }
      if (call().connected() && (step != null || core.hasError())) {
        awaitAfterwards(call()::ended, ABORT_MILLISECONDS);
      }
    } finally {
      lock.unlock();
    }
    close();
  }

  /** Return how long the task has waited for the writer. */
  public long waitedNanos() {
    return waitedNanos;
  }

  private void awaitWriter(BooleanSupplier condition) throws InterruptedException {
    long startedNanos = System.nanoTime();
    try {
      await(condition);
    } finally {
      waitedNanos += System.nanoTime() - startedNanos;
    }
  }

  @Override
  FlightCall newCall() {
    return new WriterCall();
  }

  @Override
  void start(FlightCall next) {
    next.start(command, schemaHeader, REPLIES_AHEAD);
    locked(core::opened);
  }

  @Override
  CallCore.Step<?> nextToSend() {
    return core.nextToSend(call() != null && call().isReady());
  }

  @Override
  void send(CallCore.Step<?> step) {
    try {
      super.send(step);
    } finally {
      if (step.slice() != null && step.slice().isLast()) {
        // The batch can be closed: the transport holds its own references to bytes that it has not
        // written yet.
        step.slice().batch().close();
      }
    }
  }

  /**
   * End the file without a receipt. If the task's thread is waiting, it fails with this reason and
   * can then {@link #abort} or {@link #close} the file. Idempotent.
   */
  public void cancel(String reason) {
    locked(() -> core.fail(Failure.cancelled(reason)));
  }

  @Override
  public void close() {
    try {
      super.close();
    } finally {
      parts.close();
    }
  }

  private final class WriterCall extends ShellCall {
    WriterCall() {
      super(task());
    }

    @Override
    void onReady(boolean first) {
      locked(() -> {});
    }

    @Override
    boolean onMessage(IncomingMessage message) throws MalformedReplyException {
      WriteReplyMetadata reply = metadata(message);
      ArrowBuf body = message.batchBody();
      lock.lock();
      try {
        boolean part = core.onReply(this, reply, body.readableBytes(), System.nanoTime());
        if (part) {
          body.getReferenceManager().retain();
          parts.add(body);
        }
        advance();
        // After a part, the writer may send its next message only when the part is stored.
        return !part;
      } finally {
        lock.unlock();
      }
    }

    private static WriteReplyMetadata metadata(IncomingMessage message)
        throws MalformedReplyException {
      try {
        return WriteReplyMetadata.parseFrom(message.appMetadata());
      } catch (InvalidProtocolBufferException e) {
        throw new MalformedReplyException("a reply's app_metadata is not a WriteReplyMetadata", e);
      }
    }

    @Override
    WriteRequestMetadata keepAlive() {
      return WriteRequestMetadata.newBuilder().setKeepAlive(KeepAlive.getDefaultInstance()).build();
    }
  }

  private final class StoredParts implements PartWriter.Owner {
    @Override
    public void onStored(int bytes) {
      locked(() -> core.onStored(bytes, System.nanoTime()));
      call().request(1);
    }

    @Override
    public void onFailed(Throwable failure) {
      locked(() -> core.fail(Failure.notKept(failure)));
    }
  }
}
