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
import java.util.OptionalLong;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BooleanSupplier;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.IpcOption;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * One file that a writer writes for us: batches go out as the writer gives leave, a receipt comes
 * back. Used by one task thread; only {@link #cancel} may be called from any thread.
 *
 * <p>{@link FileCore} under one lock. The task thread hands batches over and waits; gRPC's event
 * loop sends them when leave comes, so that none is held up by a task that is busy elsewhere. Under
 * the lock messages are sent, which calls nobody back; calls are opened and cancelled outside.
 */
public final class FileExchange implements AutoCloseable {
  /** Messages that the writer may send before they were handled: leave, parts, the last word. */
  private static final int REPLIES_AHEAD = 4;

  /** How long the end of a file that was given up is waited for. */
  private static final long ABORT_MILLISECONDS = 5_000;

  private static final long CLOSE_MILLISECONDS = 500;

  /** A wait without a set end looks up at least so often. */
  private static final long LONGEST_WAIT_NANOS = TimeUnit.SECONDS.toNanos(60);

  private final ReentrantLock lock = new ReentrantLock();
  private final Condition changed = lock.newCondition();
  private final ClientOptions options;
  private final TaskIdentity task;
  private final Pace pace;
  private final ByteString command;
  private final byte[] schemaHeader;
  private final BufferAllocator allocator;
  private final WireAllocator wire;
  private final FileCore core;
  private final PartWriter parts;
  private final long openedNanos = System.nanoTime();
  private volatile FileCall call;
  private long progressNanos = openedNanos;
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
    this.schemaHeader =
        RequestBatch.bytes(MessageSerializer.serializeMetadata(schema, IpcOption.DEFAULT));
    this.allocator = allocator;
    this.wire = new WireAllocator(allocator);
    this.core = new FileCore(options, command.getDelivery(), openedNanos);
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
    RequestBatch request = new RequestBatch(batch, BatchGroups.NONE);
    boolean admitted = false;
    try {
      if (request.bodyBytes() + request.header().length > options.maxMessageBytes()) {
        throw Failure.tooLarge(request.bodyBytes(), options.maxMessageBytes()).toException();
      }
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
    await(() -> core.receipt() != null);
    return core.receipt();
  }

  /** Gives the file up and waits, for a bounded time, until the writer has let go of it. */
  public void abort(String reason) {
    boolean interrupted = false;
    long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(ABORT_MILLISECONDS);
    lock.lock();
    try {
      FileCore.Step step = core.abort(reason);
      if (step != null) {
        send(step);
      }
      boolean awaited = call.connected() && (step != null || core.hasError());
      while (awaited && !call.ended() && end - System.nanoTime() > 0) {
        try {
          changed.awaitNanos(end - System.nanoTime());
        } catch (InterruptedException e) {
          interrupted = true;
        }
      }
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
      while (!awaitOrRecover(condition, startedNanos)) {
        startCall();
      }
    } finally {
      waitedNanos += System.nanoTime() - startedNanos;
    }
  }

  /** Waits for the condition; false when a new call is to be begun. */
  private boolean awaitOrRecover(BooleanSupplier condition, long startedNanos)
      throws InterruptedException {
    lock.lockInterruptibly();
    try {
      while (true) {
        core.check();
        if (condition.getAsBoolean()) {
          return true;
        }
        if (core.isRecoveryDue(System.nanoTime())) {
          return false;
        }
        long restNanos = restNanos(startedNanos, System.nanoTime());
        if (restNanos > 0) {
          changed.awaitNanos(restNanos);
        } else {
          expire();
        }
      }
    } finally {
      lock.unlock();
    }
  }

  /** How long may be waited until something is to be done or is too late. */
  private long restNanos(long startedNanos, long nowNanos) {
    if (!core.isRunning()) {
      return Math.min(LONGEST_WAIT_NANOS, Math.max(1, core.restNanos(nowNanos)));
    }
    if (!call.connected()) {
      return options.connectTimeout().toNanos() - (nowNanos - call.startedNanos());
    }
    if (options.replyTimeout().isZero()) {
      return LONGEST_WAIT_NANOS;
    }
    return options.replyTimeout().toNanos() - (nowNanos - Math.max(startedNanos, progressNanos));
  }

  /** A wait came to its end with nothing to show. */
  private void expire() {
    if (!call.connected()) {
      Failure unconnected = Failure.unconnected(options.endpoint());
      core.lose(unconnected, OptionalLong.empty(), System.nanoTime());
    } else {
      double seconds = options.replyTimeout().toMillis() / 1000.0;
      core.fail(
          Failure.deadline(
              "the writer at %s showed no progress for %s s"
                  .formatted(options.endpoint(), seconds)));
    }
  }

  /** Until the file's deadline; zero when it has none. */
  private long remainingNanos() {
    if (options.deadline().isZero()) {
      return 0;
    }
    return Math.max(1, options.deadline().toNanos() - (System.nanoTime() - openedNanos));
  }

  private void startCall() {
    if (call != null) {
      call.leave("the file is opened again");
    }
    FileCall next = new FileCall(options, task, allocator, this, remainingNanos());
    lock.lock();
    try {
      call = next;
      if (!core.begin(next::reach)) {
        return;
      }
    } finally {
      lock.unlock();
    }
    next.start(command, schemaHeader, REPLIES_AHEAD);
    locked(core::described);
  }

  /** Runs an action, sends what may be sent after it and lets the task thread look again. */
  private void locked(Runnable action) {
    lock.lock();
    try {
      action.run();
      sendWhatMayBeSent();
      changed.signalAll();
    } finally {
      lock.unlock();
    }
  }

  private void sendWhatMayBeSent() {
    for (FileCore.Step step = next(); step != null; step = next()) {
      send(step);
    }
  }

  private FileCore.Step next() {
    return core.next(call != null && call.isReady());
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

  void onReply(FileCall from, WriteReplyMetadata reply, ArrowBuf body)
      throws MalformedReplyException {
    lock.lock();
    try {
      if (from != call) {
        return;
      }
      progressNanos = System.nanoTime();
      core.onReply(reply, body.readableBytes(), progressNanos);
      if (reply.getEventCase() == WriteReplyMetadata.EventCase.OFFSET) {
        body.getReferenceManager().retain();
        parts.add(body);
      }
      sendWhatMayBeSent();
      changed.signalAll();
    } finally {
      lock.unlock();
    }
  }

  void onBroken(FileCall from, Failure broken) {
    locked(
        () -> {
          if (from == call) {
            core.fail(broken);
          }
        });
  }

  void onClosed(FileCall from, Status status, Metadata trailers) {
    locked(
        () -> {
          if (from == call) {
            core.onClosed(status, trailers, System.nanoTime());
          }
        });
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
      locked(
          () -> {
            progressNanos = System.nanoTime();
            core.onStored(bytes);
          });
      call.request(1);
    }

    @Override
    public void onFailed(Exception failure) {
      fail(Failure.notKept(failure));
    }
  }
}
