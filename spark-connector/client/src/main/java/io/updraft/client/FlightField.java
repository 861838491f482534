// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import com.google.protobuf.CodedOutputStream;
import com.google.protobuf.WireFormat;
import io.netty.buffer.ByteBuf;

/** Fields of Arrow Flight's {@code FlightData} on the wire. */
enum FlightField {
  DESCRIPTOR(1),
  HEADER(2),
  APP_METADATA(3),
  BODY(1000);

  private static final int LENGTH_DELIMITED = WireFormat.WIRETYPE_LENGTH_DELIMITED;

  private final int tag;

  FlightField(int number) {
    this.tag = number << 3 | LENGTH_DELIMITED;
  }

  /** Return the field of a tag, or null for a field that Flight does not have. */
  static FlightField ofTag(int tag) {
    for (FlightField field : values()) {
      if (field.tag == tag) {
        return field;
      }
    }
    return null;
  }

  /** Return the number of bytes of the whole field: tag, length and content. Zero if absent. */
  int sizeBytes(int lengthBytes) {
    return lengthBytes == 0 ? 0 : startBytes(lengthBytes) + lengthBytes;
  }

  /** Return the number of bytes that the tag and the length take up, without the content. */
  int startBytes(int lengthBytes) {
    return CodedOutputStream.computeUInt32SizeNoTag(tag)
        + CodedOutputStream.computeUInt32SizeNoTag(lengthBytes);
  }

  /** Write the tag and the length. */
  void writeStart(ByteBuf target, int lengthBytes) {
    writeVarint(target, tag);
    writeVarint(target, lengthBytes);
  }

  /** Write the whole field, or nothing if the content is empty. */
  void write(ByteBuf target, byte[] bytes) {
    if (bytes.length > 0) {
      writeStart(target, bytes.length);
      target.writeBytes(bytes);
    }
  }

  private static void writeVarint(ByteBuf target, int value) {
    int rest = value;
    while ((rest & ~0x7f) != 0) {
      target.writeByte(rest & 0x7f | 0x80);
      rest >>>= 7;
    }
    target.writeByte(rest);
  }
}
