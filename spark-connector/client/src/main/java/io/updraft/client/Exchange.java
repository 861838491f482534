// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import com.google.protobuf.ByteString;
import io.updraft.proto.v1.ExchangeCommand;
import io.updraft.proto.v1.KeepAlive;
import io.updraft.proto.v1.Report;
import io.updraft.proto.v1.RequestMetadata;
import io.updraft.proto.v1.SegmentRange;
import io.updraft.proto.v1.TaskIdentity;
import java.util.Collection;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.BooleanSupplier;
import java.util.function.Predicate;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * Exchange with a pool: request batches go out within a window, and reply batches come back in
 * order. Used by one task thread; only {@link #cancel} may be called from any thread.
 *
 * <p>The exchange recovers from lost calls if recovery is safe. Before any work was done, it asks a
 * full or unreachable pool again. Later it moves batches to another worker if {@link Replay} allows
 * that. The exchange starts no thread: the task's thread opens and replaces calls, and gRPC's event
 * loop receives replies. Both send batches, so that a batch can follow admission while the task's
 * thread is busy.
 */
public final class Exchange extends CallShell<ExchangeCore> {
  /** Version of the protocol (proto/README.md) that this client speaks. */
  public static final int PROTOCOL_VERSION = 1;

  /**
   * Limit on the metadata of a batch whose body is in a segment, because the pool parses this
   * metadata.
   */
  private static final int MOST_METADATA_BYTES = 32 << 10;

  private final ExchangeRequest request;
  private final Collection<? extends Artifact> artifacts;
  private final BooleanSupplier replyFound = this::findReply;

  /** Reply found by {@link #findReply}. */
  private ReplyQueue.Entry found;

  /** Bytes of all commands and of the uploads that followed them. */
  private long openingBytes;

  private final LongAdder sharedBytes = new LongAdder();

  private Exchange(
      ClientOptions options,
      TaskIdentity task,
      ExchangeRequest request,
      BufferAllocator allocator,
      Collection<? extends Artifact> artifacts,
      ExchangeCore core) {
    super(options, task, allocator, core);
    this.request = request;
    this.artifacts = artifacts;
  }

  /**
   * Open an exchange. {@link #send}, {@link #poll} or {@link #take} throws the first failure. If
   * the command lists artifacts or the function is large, this method, and every method that moves
   * the exchange to another worker, blocks until the pool has both.
   *
   * @param allocator holds the replies; request batches must come from its root
   * @param artifacts the artifacts listed in the command
   * @throws IllegalArgumentException if the options' TLS files or token file cannot be used
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
    ExchangeCore core = new ExchangeCore(options, replay, System.nanoTime());
    return opened(new Exchange(options, command.getTask(), request, allocator, artifacts, core));
  }

  /**
   * Return a helper: another exchange for the same function. {@link #startCall} opens the helper.
   */
  Exchange newHelper() {
    ExchangeCore helper = core.newHelper(System.nanoTime());
    return new Exchange(options, task(), request, allocator, artifacts, helper);
  }

  /** Return why the exchange failed; null if it has not failed. */
  ExchangeException failure() {
    return read(() -> core.phase() == CallCore.Phase.FAILED ? core.failure() : null);
  }

  /** Return the {@code data_header} of the first message of an exchange with this schema. */
  public static byte[] schemaHeader(Schema schema) {
    return RequestBatch.header(schema);
  }

  /** Return whether the window has room for one more batch. */
  public boolean hasRoom() {
    lock.lock();
    try {
      return core.hasRoom();
    } finally {
      lock.unlock();
    }
  }

  /**
   * Send a batch and take it over: the exchange closes the batch, even if this method throws. Never
   * blocks. A large batch is sent only after the pool has admitted the exchange, that is, assigned
   * a worker to it. After {@link Reply.Kind#END}, batches are dropped, because the function needs
   * no more input.
   *
   * @param rows the batch's rows
   * @throws IllegalArgumentException if the batch has a different number of rows
   * @throws ExchangeException if the exchange already failed, or the batch is larger than {@link
   *     ClientOptions#maxBatchBytes}
   * @throws IllegalStateException if the window has no room, or if {@link #finishSending} was
   *     called
   */
  public void send(ArrowRecordBatch batch, int rows) {
    send(batch, rows, BatchGroups.NONE);
  }

  /**
   * Send a batch for a function over groups. Apart from the groups, this is {@link
   * #send(ArrowRecordBatch, int)}.
   *
   * @param groups the ends of the groups in the batch
   */
  public void send(ArrowRecordBatch batch, int rows, BatchGroups groups) {
    if (!admit(batch, rows, groups, core::admit)) {
      recoverIfDue();
    }
  }

  /**
   * Send a batch like {@link #send(ArrowRecordBatch, int)}, while another thread waits in {@link
   * #take}. Only the waiting thread replaces a lost call.
   */
  public void sendBesideTake(ArrowRecordBatch batch, int rows) {
    admit(batch, rows, BatchGroups.NONE, core::admit);
  }

  /** Pass a batch to the core and send what is due. Return whether a call is open. */
  boolean admit(
      ArrowRecordBatch batch, int rows, BatchGroups groups, Predicate<RequestBatch> take) {
    if (rows != batch.getLength()) {
      batch.close();
      throw new IllegalArgumentException(
          "the batch has " + batch.getLength() + " rows, but the caller announced " + rows);
    }
    RequestBatch taken = RequestBatch.takeOver(batch, groups, options);
    lock.lock();
    try {
      boolean running = take.test(taken);
      advance();
      return running;
    } finally {
      lock.unlock();
    }
  }

  /** Announce that every batch was sent. Idempotent. */
  public void finishSending() {
    locked(core::finishSending);
  }

  /**
   * Return the next batch of results, or the end; null if neither has arrived yet. Never blocks.
   *
   * @throws ExchangeException if the exchange failed and all earlier replies were returned
   */
  public Reply poll() {
    recoverIfDue();
    return credited(read(core::next));
  }

  /**
   * Wait for the next report and return it: a batch of results, the end, or {@link Reply#ROOM},
   * which means that a full window has room again.
   *
   * @throws ExchangeException if the exchange failed and all earlier replies were returned
   * @throws InterruptedException if the thread was interrupted; the caller still has to close the
   *     exchange
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

  /** Return the entry's reply, and let the pool send one more reply in its place. */
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
    // A helper does not wait for a worker, so it may run on any pod. With artifacts, the helper
    // stays on the task's pod, which has these artifacts.
    boolean anywhere = artifacts.isEmpty() && read(core::callsAsHelper);
    return new PoolCall(anywhere ? TaskIdentity.getDefaultInstance() : task());
  }

  @Override
  void start(FlightCall next) {
    ByteString command = read(() -> request.command(core.callsAsHelper(), core.isRefusable()));
    openingBytes += next.start(command, request.schemaHeader(), options.windowBatches() + 1);
    if (upload(next)) {
      locked(() -> core.opened(command.size(), System.nanoTime()));
    }
  }

  @Override
  CallCore.Step<?> nextToSend() {
    return core.nextToSend();
  }

  @Override
  OutgoingMessage message(CallCore.Step<?> step) {
    OutgoingMessage placed = ((PoolCall) call()).placed(step);
    return placed == null ? super.message(step) : placed;
  }

  /** Send what the pool asks for before the first batch. Return false if the call was lost. */
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

  /** Return the schema of the results; null until the pool has sent it. */
  public Schema resultSchema() {
    return read(core::resultSchema);
  }

  /**
   * Return the worker's measurements.
   *
   * @throws IllegalStateException if called before {@link Reply.Kind#END}
   */
  public Report report() {
    return read(core::report);
  }

  /** Return the number of bytes in request messages, including messages that were sent again. */
  public long bytesSent() {
    return openingBytes + sentBytes();
  }

  /** Return the number of bytes sent or received through shared memory. */
  public long sharedBytes() {
    return sharedBytes.sum();
  }

  /** Return the number of bytes in reply messages. */
  public long bytesReceived() {
    return read(core::bytesReceived);
  }

  /**
   * Return how many times the exchange was replayed on another worker after its worker or
   * connection was lost. {@link Replay} defines what may be replayed. The number does not include
   * attempts to reach a full or unavailable pool.
   */
  public int replays() {
    return read(core::replays);
  }

  /** End the exchange. A waiting task thread fails with this reason. Idempotent, for any thread. */
  public void cancel(String reason) {
    locked(() -> core.cancel(reason));
    if (call() != null) {
      call().cancel(reason);
    }
  }

  /** One call of the exchange. {@link ReplyProtocol} checks the order of the call's replies. */
  private final class PoolCall extends ShellCall {
    PoolCall(TaskIdentity stay) {
      super(stay);
    }

    @Override
    Replicas.Departure departure() {
      return read(core::departure);
    }

    private final ReplyProtocol protocol = new ReplyProtocol(options, this::bodyInSegment);

    /** Memory shared with the pool; null if bodies travel in their messages. */
    private volatile Segment segment;

    /** Number of bytes of the last reply that were in the segment. */
    private int placedBytes;

    /**
     * Copy a batch into the segment and return its message; null if the batch cannot use the
     * segment.
     */
    OutgoingMessage placed(CallCore.Step<?> step) {
      Segment to = segment;
      if (to == null
          || step.slice() == null
          || !(step.metadata() instanceof RequestMetadata metadata)
          || metadata.getSequence() == 0
          || metadata.getSerializedSize() > MOST_METADATA_BYTES) {
        return null;
      }
      BatchSlicer.Slice slice = step.slice();
      SegmentRange range =
          slice.startByte() == 0 ? to.place(slice.batch(), metadata.getSequence()) : null;
      return range == null
          ? null
          : OutgoingMessage.ofPlaced(slice, metadata.toBuilder().setBody(range).build());
    }

    private ArrowBuf bodyInSegment(SegmentRange range) throws MalformedReplyException {
      Segment from = segment;
      if (from == null) {
        throw new MalformedReplyException("a reply is in a segment that is not mapped");
      }
      ArrowBuf body = from.take(range, allocator);
      placedBytes = (int) body.readableBytes();
      return body;
    }

    @Override
    void onReady(boolean first) {
      // Later events matter only to the upload of artifacts. The exchange's window limits batches.
      if (first || protocol.state() == ReplyProtocol.State.INIT) {
        locked(() -> {});
      }
    }

    @Override
    boolean onMessage(IncomingMessage message) throws MalformedReplyException {
      placedBytes = 0;
      ReplyEvent event = protocol.accept(message);
      if (event instanceof ReplyEvent.SegmentOffered offered) {
        segment = Segment.ofOffer(options.endpoint(), offered, sharedBytes);
      } else if (segment != null) {
        segment.consumed(protocol.consumed());
      }
      int sizeBytes = message.sizeBytes() + placedBytes;
      lock.lock();
      try {
        core.onEvent(this, event, protocol.consumed(), sizeBytes, System.nanoTime());
        advance();
      } finally {
        lock.unlock();
      }
      listener.run();
      return !(event instanceof ReplyEvent.Batch || event instanceof ReplyEvent.Logged);
    }

    @Override
    void onReleased() {
      protocol.close();
      if (segment != null) {
        segment.close();
      }
    }

    @Override
    RequestMetadata keepAlive() {
      return RequestMetadata.newBuilder().setKeepAlive(KeepAlive.getDefaultInstance()).build();
    }
  }
}
