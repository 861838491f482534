// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import com.google.protobuf.ByteString;
import io.grpc.Metadata;
import io.grpc.Status;
import io.updraft.proto.v1.TaskIdentity;
import org.apache.arrow.memory.BufferAllocator;

/**
 * One call of an {@link Exchange}. Its task thread sends; gRPC's event loop reads replies, puts
 * them in order with {@link ReplyProtocol} and tells the {@link Owner}.
 */
final class Attempt extends FlightCall {
  /** Whom an attempt tells, on gRPC's event loop, without locks held. */
  interface Owner {
    /** The call has reached the wire, or takes more after it was full: other waits apply now. */
    void onReady();

    /** A message arrived in order; a batch in the event is the owner's from now on. */
    void onEvent(Attempt attempt, ReplyEvent event, int sizeBytes) throws MalformedReplyException;

    /** The call is unusable; comes at most once, and nothing follows. */
    void onBroken(Attempt attempt, Failure failure);

    /** The call ended with a status; nothing follows. */
    void onClosed(Attempt attempt, Status status, Metadata trailers);
  }

  private final WireAllocator wire;
  private final Owner owner;
  private final long base;
  private final ReplyProtocol protocol = new ReplyProtocol();

  private long sentRows;
  private volatile long sentBatches;

  /**
   * Prepares a call.
   *
   * @param base the exchange's number of the batch before this call's first
   * @param remainingNanos until the call's deadline; zero for none
   */
  Attempt(
      ClientOptions options,
      TaskIdentity task,
      BufferAllocator allocator,
      WireAllocator wire,
      Owner owner,
      long base,
      long remainingNanos) {
    super(options, task, allocator, remainingNanos);
    this.wire = wire;
    this.owner = owner;
    this.base = base;
  }

  long base() {
    return base;
  }

  ReplyProtocol.State state() {
    return protocol.state();
  }

  long consumed() {
    return protocol.consumed();
  }

  /** Sends the next batch. @return bytes sent */
  long send(RequestBatch batch) {
    long sequence = sentBatches + 1;
    sentRows += batch.rows();
    // Before it is sent: the pool's credit for it must not come first.
    sentBatches = sequence;
    return send(OutgoingMessage.batch(batch, sequence, wire));
  }

  /** Says that every batch was sent. @return bytes sent */
  long finish() {
    long bytes = send(OutgoingMessage.finish(sentBatches, sentRows));
    halfClose();
    return bytes;
  }

  /** Sends a part of a content. @return bytes sent */
  long send(ByteString sha256, long offset, byte[] data) {
    return send(OutgoingMessage.content(sha256, offset, data));
  }

  /** Sends a part of the deferred payload. @return bytes sent */
  long send(long offset, byte[] data) {
    return send(OutgoingMessage.payload(offset, data));
  }

  @Override
  OutgoingMessage keepAliveMessage() {
    return OutgoingMessage.keepAlive();
  }

  @Override
  void onReady(boolean first) {
    // Only contents wait for it again: batches have a window of their own.
    if (first || protocol.state() == ReplyProtocol.State.INIT) {
      owner.onReady();
    }
  }

  @Override
  boolean onMessage(IncomingMessage message) throws MalformedReplyException {
    ReplyEvent event = protocol.accept(message, sentBatches);
    owner.onEvent(this, event, message.sizeBytes());
    return !(event instanceof ReplyEvent.Batch || event instanceof ReplyEvent.Logged);
  }

  @Override
  void onBroken(Failure failure) {
    owner.onBroken(this, failure);
  }

  @Override
  void onClosed(Status status, Metadata trailers) {
    owner.onClosed(this, status, trailers);
  }
}
