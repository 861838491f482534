// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import com.google.protobuf.WireFormat;
import io.grpc.HasByteBuffer;
import io.grpc.KnownLength;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;

/**
 * Reader of one FlightData. It copies the body once, from the transport's buffers into one Arrow
 * buffer. It rejects a field whose length exceeds the available bytes.
 */
final class FlightDataReader {
  private static final byte[] NOTHING = {};

  private final InputStream stream;
  private final BufferAllocator allocator;
  private byte[] header = NOTHING;
  private byte[] appMetadata = NOTHING;
  private ArrowBuf body;

  private FlightDataReader(InputStream stream, BufferAllocator allocator) {
    this.stream = stream;
    this.allocator = allocator;
  }

  /**
   * Read a message from a stream that knows its length.
   *
   * @throws MalformedReplyException if the bytes are not a FlightData; no memory stays allocated
   */
  static IncomingMessage read(InputStream stream, BufferAllocator allocator)
      throws MalformedReplyException {
    if (!(stream instanceof KnownLength)) {
      throw new MalformedReplyException("the pool compressed a message");
    }
    FlightDataReader reader = new FlightDataReader(stream, allocator);
    boolean whole = false;
    try {
      int sizeBytes = stream.available();
      reader.readFields();
      whole = true;
      return new IncomingMessage(reader.header, reader.appMetadata, reader.body, sizeBytes);
    } catch (IOException e) {
      throw new MalformedReplyException("cannot read a message: " + e.getMessage(), e);
    } finally {
      if (!whole && reader.body != null) {
        reader.body.close();
      }
    }
  }

  private void readFields() throws IOException, MalformedReplyException {
    while (stream.available() > 0) {
      int tag = readVarint();
      FlightField field = FlightField.ofTag(tag);
      if (field == null) {
        skip(tag);
      } else {
        readField(field, readLength());
      }
    }
  }

  private void readField(FlightField field, int length)
      throws IOException, MalformedReplyException {
    switch (field) {
      case HEADER -> header = stream.readNBytes(length);
      case APP_METADATA -> appMetadata = stream.readNBytes(length);
      case BODY -> readBody(length);
      case DESCRIPTOR -> stream.skipNBytes(length);
    }
  }

  private void readBody(int length) throws IOException, MalformedReplyException {
    if (body != null) {
      throw new MalformedReplyException("a message has two bodies");
    }
    body = allocator.buffer(length);
    if (stream instanceof HasByteBuffer source && source.byteBufferSupported()) {
      copyBuffers(source, length);
    } else {
      body.writeBytes(stream.readNBytes(length));
    }
  }

  private void copyBuffers(HasByteBuffer source, int length)
      throws IOException, MalformedReplyException {
    int rest = length;
    while (rest > 0) {
      ByteBuffer piece = source.getByteBuffer();
      if (piece.remaining() > rest) {
        piece.limit(piece.position() + rest);
      }
      int size = piece.remaining();
      if (size == 0) {
        throw new MalformedReplyException("a message ends inside its body");
      }
      body.setBytes(body.writerIndex(), piece);
      body.writerIndex(body.writerIndex() + size);
      stream.skipNBytes(size);
      rest -= size;
    }
  }

  private int readLength() throws IOException, MalformedReplyException {
    int length = readVarint();
    if (length < 0 || length > stream.available()) {
      throw new MalformedReplyException(
          "a field of "
              + Integer.toUnsignedString(length)
              + " bytes in a message with "
              + stream.available()
              + " left");
    }
    return length;
  }

  private int readVarint() throws IOException, MalformedReplyException {
    long value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      int next = stream.read();
      if (next < 0) {
        throw new MalformedReplyException("a message ends inside a number");
      }
      value |= (long) (next & 0x7f) << shift;
      if ((next & 0x80) == 0) {
        return value >>> 32 == 0 ? (int) value : -1;
      }
    }
    throw new MalformedReplyException("a number has more than 64 bits");
  }

  private void skip(int tag) throws IOException, MalformedReplyException {
    switch (tag & 7) {
      case WireFormat.WIRETYPE_VARINT -> readVarint();
      case WireFormat.WIRETYPE_FIXED64 -> stream.skipNBytes(8);
      case WireFormat.WIRETYPE_FIXED32 -> stream.skipNBytes(4);
      case WireFormat.WIRETYPE_LENGTH_DELIMITED -> stream.skipNBytes(readLength());
      default ->
          throw new MalformedReplyException("a field has an unsupported wire type: tag " + tag);
    }
  }
}
