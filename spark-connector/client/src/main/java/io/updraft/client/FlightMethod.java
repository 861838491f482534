// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.grpc.Drainable;
import io.grpc.MethodDescriptor;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufInputStream;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.util.function.Function;

/**
 * gRPC methods of Flight and of the health service, without Flight's generated classes. Requests
 * encode themselves, and callers receive replies as unparsed streams.
 */
final class FlightMethod {
  /** DoExchange; {@link FlightDataReader} reads its replies. */
  static final MethodDescriptor<OutgoingMessage, InputStream> DO_EXCHANGE =
      method(MethodDescriptor.MethodType.BIDI_STREAMING, "DoExchange", MessageStream::new);

  static final MethodDescriptor<FlightAction, InputStream> DO_ACTION =
      method(MethodDescriptor.MethodType.SERVER_STREAMING, "DoAction", FlightAction::encoded);

  /**
   * Health check. Every listener offers it, even a listener without Flight. The request is an
   * encoded message.
   */
  static final MethodDescriptor<byte[], InputStream> HEALTH_CHECK =
      named(
          MethodDescriptor.MethodType.UNARY,
          "grpc.health.v1.Health/Check",
          ByteArrayInputStream::new);

  private FlightMethod() {}

  private static <T> MethodDescriptor<T, InputStream> method(
      MethodDescriptor.MethodType type, String name, Function<T, InputStream> encoder) {
    return named(type, "arrow.flight.protocol.FlightService/" + name, encoder);
  }

  private static <T> MethodDescriptor<T, InputStream> named(
      MethodDescriptor.MethodType type, String fullName, Function<T, InputStream> encoder) {
    return MethodDescriptor.<T, InputStream>newBuilder()
        .setType(type)
        .setFullMethodName(fullName)
        .setRequestMarshaller(new Bytes<>(encoder, null))
        .setResponseMarshaller(new Bytes<>(null, stream -> stream))
        .build();
  }

  /**
   * Marshaller for one direction of a method: a client writes requests and reads replies, never the
   * reverse.
   */
  private record Bytes<T>(Function<T, InputStream> encoder, Function<InputStream, T> decoder)
      implements MethodDescriptor.Marshaller<T> {
    @Override
    public InputStream stream(T message) {
      return encoder.apply(message);
    }

    @Override
    public T parse(InputStream stream) {
      return decoder.apply(stream);
    }
  }

  /**
   * Stream that encodes the message when gRPC asks for the bytes, so that a message that is never
   * sent allocates no memory.
   */
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
