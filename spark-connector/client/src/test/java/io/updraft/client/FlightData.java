// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import com.google.protobuf.CodedInputStream;
import com.google.protobuf.CodedOutputStream;
import io.updraft.proto.v1.ExchangeCommand;
import io.updraft.proto.v1.ReplyMetadata;
import io.updraft.proto.v1.RequestMetadata;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;

/** FlightData encoded by protobuf's own coder, as a reference for the hand-written one. */
record FlightData(byte[] descriptor, byte[] header, byte[] appMetadata, byte[] body) {
  private static final byte[] NOTHING = {};

  static FlightData reply(ReplyMetadata metadata) {
    return new FlightData(NOTHING, NOTHING, metadata.toByteArray(), NOTHING);
  }

  static FlightData reply(ReplyMetadata metadata, byte[] header, byte[] body) {
    return new FlightData(NOTHING, header, metadata.toByteArray(), body);
  }

  static FlightData parse(byte[] bytes) {
    byte[] descriptor = NOTHING;
    byte[] header = NOTHING;
    byte[] appMetadata = NOTHING;
    byte[] body = NOTHING;
    try {
      CodedInputStream in = CodedInputStream.newInstance(bytes);
      for (int tag = in.readTag(); tag != 0; tag = in.readTag()) {
        switch (tag >>> 3) {
          case 1 -> descriptor = in.readByteArray();
          case 2 -> header = in.readByteArray();
          case 3 -> appMetadata = in.readByteArray();
          case 1000 -> body = in.readByteArray();
          default -> throw new AssertionError("field " + (tag >>> 3));
        }
      }
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return new FlightData(descriptor, header, appMetadata, body);
  }

  byte[] encode() {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    CodedOutputStream out = CodedOutputStream.newInstance(bytes);
    try {
      write(out, 1, descriptor);
      write(out, 2, header);
      write(out, 3, appMetadata);
      write(out, 1000, body);
      out.flush();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return bytes.toByteArray();
  }

  private static void write(CodedOutputStream out, int number, byte[] bytes) throws IOException {
    if (bytes.length > 0) {
      out.writeByteArray(number, bytes);
    }
  }

  /** Return the command in the descriptor. */
  ExchangeCommand command() {
    try {
      CodedInputStream in = CodedInputStream.newInstance(descriptor);
      for (int tag = in.readTag(); tag != 0; tag = in.readTag()) {
        if (tag >>> 3 == 2) {
          return ExchangeCommand.parseFrom(in.readByteArray());
        }
        in.skipField(tag);
      }
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    throw new AssertionError("the descriptor has no command");
  }

  RequestMetadata request() {
    try {
      return RequestMetadata.parseFrom(appMetadata);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
