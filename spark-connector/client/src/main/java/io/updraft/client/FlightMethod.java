// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.grpc.Drainable;
import io.grpc.MethodDescriptor;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;

/**
 * Flight's {@code DoExchange} for gRPC, without its generated classes: requests write their own
 * bytes, replies are handed over as the stream they came in and read by {@link FlightDataReader}.
 */
final class FlightMethod {
  static final MethodDescriptor<OutgoingMessage, InputStream> DO_EXCHANGE =
      MethodDescriptor.<OutgoingMessage, InputStream>newBuilder()
          .setType(MethodDescriptor.MethodType.BIDI_STREAMING)
          .setFullMethodName("arrow.flight.protocol.FlightService/DoExchange")
          .setRequestMarshaller(new RequestMarshaller())
          .setResponseMarshaller(new ReplyMarshaller())
          .build();

  private FlightMethod() {}

  private static final class RequestMarshaller
      implements MethodDescriptor.Marshaller<OutgoingMessage> {
    @Override
    public InputStream stream(OutgoingMessage message) {
      return new MessageStream(message);
    }

    @Override
    public OutgoingMessage parse(InputStream stream) {
      throw new UnsupportedOperationException("a client reads no requests");
    }
  }

  private static final class ReplyMarshaller implements MethodDescriptor.Marshaller<InputStream> {
    @Override
    public InputStream stream(InputStream value) {
      throw new UnsupportedOperationException("a client writes no replies");
    }

    @Override
    public InputStream parse(InputStream stream) {
      return stream;
    }
  }

  /** Encodes when gRPC asks for the bytes: a message that is never asked for holds nothing. */
  private static final class MessageStream extends InputStream implements Drainable {
    private final OutgoingMessage message;
    private ByteBufInputStream bytes;

    MessageStream(OutgoingMessage message) {
      this.message = message;
    }

    @Override
    public int drainTo(OutputStream target) throws IOException {
      ByteBuf encoded = message.encode();
      return encoded == null ? 0 : ZeroCopyOutput.write(encoded, target);
    }

    @Override
    public int read() throws IOException {
      return opened().read();
    }

    @Override
    public int read(byte[] target, int offset, int length) throws IOException {
      return opened().read(target, offset, length);
    }

    private ByteBufInputStream opened() throws IOException {
      if (bytes == null) {
        ByteBuf encoded = message.encode();
        if (encoded == null) {
          throw new IOException("the exchange is closed");
        }
        bytes = new ByteBufInputStream(encoded, true);
      }
      return bytes;
    }

    @Override
    public void close() throws IOException {
      if (bytes != null) {
        bytes.close();
      }
    }
  }
}
