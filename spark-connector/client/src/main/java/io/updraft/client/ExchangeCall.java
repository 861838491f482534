// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import com.google.protobuf.ByteString;
import io.grpc.Metadata;
import io.grpc.Status;
import io.updraft.proto.v1.TaskIdentity;
import org.apache.arrow.memory.BufferAllocator;

/**
 * One call of an {@link Exchange}, which it tells of what the pool says. gRPC's event loop reads
 * replies and checks their order with {@link ReplyProtocol}.
 */
final class ExchangeCall extends FlightCall {
  private final WireAllocator wire;
  private final Exchange owner;
  private final ReplyProtocol protocol = new ReplyProtocol();

  private long sentRows;
  private volatile long sentBatches;

  /**
   * Prepares a call.
   *
   * @param remainingNanos until the call's deadline; zero for none
   */
  ExchangeCall(
      ClientOptions options,
      TaskIdentity task,
      BufferAllocator allocator,
      WireAllocator wire,
      Exchange owner,
      long remainingNanos) {
    super(options, task, allocator, remainingNanos);
    this.wire = wire;
    this.owner = owner;
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

  /** Sends a part of an artifact. @return bytes sent */
  long send(ByteString sha256, long offset, byte[] data) {
    return send(OutgoingMessage.artifact(sha256, offset, data));
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
    // Only artifacts wait for it again: batches have a window of their own.
    if (first || protocol.state() == ReplyProtocol.State.INIT) {
      owner.onReady();
    }
  }

  @Override
  boolean onMessage(IncomingMessage message) throws MalformedReplyException {
    ReplyEvent event = protocol.accept(message, sentBatches);
    owner.onEvent(this, event, protocol.consumed(), message.sizeBytes());
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
