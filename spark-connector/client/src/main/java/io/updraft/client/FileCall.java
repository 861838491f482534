// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import com.google.protobuf.InvalidProtocolBufferException;
import io.grpc.Metadata;
import io.grpc.Status;
import io.updraft.proto.v1.KeepAlive;
import io.updraft.proto.v1.TaskIdentity;
import io.updraft.proto.v1.WriteReplyMetadata;
import io.updraft.proto.v1.WriteRequestMetadata;
import org.apache.arrow.memory.BufferAllocator;

/** One call of a {@link FileExchange}, which it tells of what the writer says. */
final class FileCall extends FlightCall {
  private final FileExchange owner;

  FileCall(
      ClientOptions options,
      TaskIdentity task,
      BufferAllocator allocator,
      FileExchange owner,
      long remainingNanos) {
    super(options, task, allocator, remainingNanos);
    this.owner = owner;
  }

  @Override
  OutgoingMessage keepAliveMessage() {
    return OutgoingMessage.of(
        WriteRequestMetadata.newBuilder().setKeepAlive(KeepAlive.getDefaultInstance()).build());
  }

  @Override
  void onReady(boolean first) {
    owner.onReady();
  }

  @Override
  boolean onMessage(IncomingMessage message) throws MalformedReplyException {
    WriteReplyMetadata metadata;
    try {
      metadata = WriteReplyMetadata.parseFrom(message.appMetadata());
    } catch (InvalidProtocolBufferException e) {
      throw new MalformedReplyException("a reply's app_metadata is not a writer's", e);
    }
    // The next part of a file comes when this one is stored.
    return !owner.onReply(this, metadata, message.batchBody());
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
