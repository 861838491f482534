// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import com.google.protobuf.ByteString;
import com.google.protobuf.CodedOutputStream;
import com.google.protobuf.MessageLite;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.PooledByteBufAllocator;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;

/**
 * FlightData from client to pool or writer. Absent fields are empty.
 *
 * @param descriptor the flight descriptor; only in the first message of a call
 * @param header IPC metadata of a schema or a batch
 * @param appMetadata the protocol's own message
 * @param body bytes of a part of an artifact or payload
 * @param slice the slice of a batch that forms the body; null without a batch
 * @param allocator holds the batch's buffers while they are sent; null without a batch, or if the
 *     body is in a segment
 */
record OutgoingMessage(
    byte[] descriptor,
    byte[] header,
    byte[] appMetadata,
    byte[] body,
    BatchSlicer.Slice slice,
    WireAllocator allocator) {
  private static final byte[] NOTHING = {};
  private static final int DESCRIPTOR_TYPE = 1;
  private static final int DESCRIPTOR_CMD = 2;
  private static final int TYPE_CMD = 2;

  /** Return the opening message, with the command and the schema of the arguments. */
  static OutgoingMessage opening(ByteString command, byte[] schemaHeader) {
    return new OutgoingMessage(
        commandDescriptor(command), schemaHeader, NOTHING, NOTHING, null, null);
  }

  /** Return the message for a step of a core. */
  static OutgoingMessage of(CallCore.Step<?> step, WireAllocator allocator) {
    BatchSlicer.Slice slice = step.slice();
    byte[] header = slice == null ? NOTHING : slice.header();
    byte[] metadata = step.metadata().toByteArray();
    return new OutgoingMessage(NOTHING, header, metadata, NOTHING, slice, allocator);
  }

  /** Return the message for a batch whose body is in a segment. */
  static OutgoingMessage ofPlaced(BatchSlicer.Slice slice, MessageLite metadata) {
    return new OutgoingMessage(
        NOTHING, slice.header(), metadata.toByteArray(), NOTHING, slice, null);
  }

  /** Return a message without a batch; the metadata describes the data. */
  static OutgoingMessage of(MessageLite metadata, byte... data) {
    return new OutgoingMessage(NOTHING, NOTHING, metadata.toByteArray(), data, null, null);
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
    return slice == null ? 0 : slice.bodyBytes();
  }

  private boolean hasBatchBody() {
    return slice != null && allocator != null;
  }

  /** Return the size of the whole message in bytes, including a body in a segment. */
  long sizeBytes() {
    return (long) prefixBytes() + bodyBytes();
  }

  private int prefixBytes() {
    return FlightField.DESCRIPTOR.sizeBytes(descriptor.length)
        + FlightField.HEADER.sizeBytes(header.length)
        + FlightField.APP_METADATA.sizeBytes(appMetadata.length)
        + FlightField.BODY.sizeBytes(body.length)
        + (hasBatchBody() ? FlightField.BODY.startBytes(bodyBytes()) : 0);
  }

  /**
   * Encode the message. The caller releases the buffer. Return null if the batch was closed with
   * its exchange.
   */
  ByteBuf encode() {
    boolean small = hasBatchBody() && bodyBytes() <= RequestBatch.COPY_LIMIT_BYTES;
    int capacity = prefixBytes() + (small ? bodyBytes() : 0);
    ByteBuf prefix = PooledByteBufAllocator.DEFAULT.directBuffer(capacity);
    FlightField.DESCRIPTOR.write(prefix, descriptor);
    FlightField.HEADER.write(prefix, header);
    FlightField.APP_METADATA.write(prefix, appMetadata);
    FlightField.BODY.write(prefix, body);
    if (!hasBatchBody()) {
      return prefix;
    }
    FlightField.BODY.writeStart(prefix, bodyBytes());
    return slice.message(allocator, prefix);
  }
}
