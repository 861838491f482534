// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import com.google.protobuf.ByteString;
import com.google.protobuf.CodedOutputStream;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.PooledByteBufAllocator;
import io.updraft.proto.v1.ArtifactPart;
import io.updraft.proto.v1.Finish;
import io.updraft.proto.v1.KeepAlive;
import io.updraft.proto.v1.PayloadPart;
import io.updraft.proto.v1.RequestMetadata;
import io.updraft.proto.v1.WriteRequestMetadata;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;

/** One FlightData from client to pool or writer. */
final class OutgoingMessage {
  private static final byte[] NOTHING = {};
  private static final int DESCRIPTOR_TYPE = 1;
  private static final int DESCRIPTOR_CMD = 2;
  private static final int TYPE_CMD = 2;

  private final byte[] descriptor;
  private final byte[] header;
  private final byte[] appMetadata;
  private final byte[] body;
  private final RequestBatch batch;
  private final WireAllocator allocator;

  private OutgoingMessage(
      byte[] descriptor,
      byte[] header,
      byte[] appMetadata,
      byte[] body,
      RequestBatch batch,
      WireAllocator allocator) {
    this.descriptor = descriptor;
    this.header = header;
    this.appMetadata = appMetadata;
    this.body = body;
    this.batch = batch;
    this.allocator = allocator;
  }

  /** The command and the schema of the arguments. */
  static OutgoingMessage opening(ByteString command, byte[] schemaHeader) {
    return new OutgoingMessage(
        commandDescriptor(command), schemaHeader, NOTHING, NOTHING, null, null);
  }

  /** A batch with its number in this call. */
  static OutgoingMessage batch(RequestBatch batch, long sequence, WireAllocator allocator) {
    RequestMetadata.Builder metadata = RequestMetadata.newBuilder().setSequence(sequence);
    for (int end : batch.groups().ends()) {
      metadata.addGroupEnds(end);
    }
    metadata.setInput(batch.groups().input());
    return new OutgoingMessage(
        NOTHING, batch.header(), metadata.build().toByteArray(), NOTHING, batch, allocator);
  }

  /** A batch of a file; its number is in the metadata. */
  static OutgoingMessage batch(
      RequestBatch batch, WriteRequestMetadata metadata, WireAllocator allocator) {
    return new OutgoingMessage(
        NOTHING, batch.header(), metadata.toByteArray(), NOTHING, batch, allocator);
  }

  /** What a client says of its file. */
  static OutgoingMessage of(WriteRequestMetadata metadata) {
    return new OutgoingMessage(NOTHING, NOTHING, metadata.toByteArray(), NOTHING, null, null);
  }

  /** That a client of a pool is still there. */
  static OutgoingMessage keepAlive() {
    byte[] metadata =
        RequestMetadata.newBuilder()
            .setKeepAlive(KeepAlive.getDefaultInstance())
            .build()
            .toByteArray();
    return new OutgoingMessage(NOTHING, NOTHING, metadata, NOTHING, null, null);
  }

  /** A part of an artifact. */
  static OutgoingMessage artifact(ByteString sha256, long offset, byte[] data) {
    ArtifactPart part = ArtifactPart.newBuilder().setSha256(sha256).setOffset(offset).build();
    byte[] metadata = RequestMetadata.newBuilder().setArtifact(part).build().toByteArray();
    return new OutgoingMessage(NOTHING, NOTHING, metadata, data, null, null);
  }

  /** A part of the deferred payload. */
  static OutgoingMessage payload(long offset, byte[] data) {
    PayloadPart part = PayloadPart.newBuilder().setOffset(offset).build();
    byte[] metadata = RequestMetadata.newBuilder().setPayload(part).build().toByteArray();
    return new OutgoingMessage(NOTHING, NOTHING, metadata, data, null, null);
  }

  /** The last message: what was sent in this call. */
  static OutgoingMessage finish(long batches, long rows) {
    Finish finish = Finish.newBuilder().setBatches(batches).setRows(rows).build();
    byte[] metadata = RequestMetadata.newBuilder().setFinish(finish).build().toByteArray();
    return new OutgoingMessage(NOTHING, NOTHING, metadata, NOTHING, null, null);
  }

  private static byte[] commandDescriptor(ByteString command) {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream(command.size() + 16);
    CodedOutputStream out = CodedOutputStream.newInstance(bytes);
    try {
      out.writeEnum(DESCRIPTOR_TYPE, TYPE_CMD);
      out.writeBytes(DESCRIPTOR_CMD, command);
      out.flush();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return bytes.toByteArray();
  }

  private int bodyBytes() {
    return batch == null ? 0 : Math.toIntExact(batch.bodyBytes());
  }

  /** Bytes of the whole message. */
  long sizeBytes() {
    return (long) prefixBytes() + bodyBytes();
  }

  private int prefixBytes() {
    return FlightField.DESCRIPTOR.sizeBytes(descriptor.length)
        + FlightField.HEADER.sizeBytes(header.length)
        + FlightField.APP_METADATA.sizeBytes(appMetadata.length)
        + FlightField.BODY.sizeBytes(body.length)
        + (batch == null ? 0 : FlightField.BODY.startBytes(bodyBytes()));
  }

  /** The message's bytes, released by the caller; null when its batch is gone with its exchange. */
  ByteBuf encode() {
    boolean small = bodyBytes() <= RequestBatch.COPY_LIMIT_BYTES;
    int capacity = prefixBytes() + (small ? bodyBytes() : 0);
    ByteBuf prefix = PooledByteBufAllocator.DEFAULT.directBuffer(capacity);
    FlightField.DESCRIPTOR.write(prefix, descriptor);
    FlightField.HEADER.write(prefix, header);
    FlightField.APP_METADATA.write(prefix, appMetadata);
    FlightField.BODY.write(prefix, body);
    if (batch == null) {
      return prefix;
    }
    FlightField.BODY.writeStart(prefix, bodyBytes());
    return batch.message(allocator, prefix);
  }
}
