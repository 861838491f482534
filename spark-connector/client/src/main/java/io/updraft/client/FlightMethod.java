// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.grpc.Drainable;
import io.grpc.MethodDescriptor;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.util.function.Function;

/**
 * Flight's methods for gRPC, without its generated classes: requests write their own bytes, replies
 * are handed over as the stream they came in.
 */
final class FlightMethod {
  /** Stands for the result of an action: only the call's status is read. */
  enum Unread {
    RESULT
  }

  private static final String SERVICE = "arrow.flight.protocol.FlightService/";

  /** Replies are read by {@link FlightDataReader}. */
  static final MethodDescriptor<OutgoingMessage, InputStream> DO_EXCHANGE =
      MethodDescriptor.<OutgoingMessage, InputStream>newBuilder()
          .setType(MethodDescriptor.MethodType.BIDI_STREAMING)
          .setFullMethodName(SERVICE + "DoExchange")
          .setRequestMarshaller(new Requests<>(MessageStream::new))
          .setResponseMarshaller(new Replies<>(stream -> stream))
          .build();

  static final MethodDescriptor<FlightAction, Unread> DO_ACTION =
      MethodDescriptor.<FlightAction, Unread>newBuilder()
          .setType(MethodDescriptor.MethodType.SERVER_STREAMING)
          .setFullMethodName(SERVICE + "DoAction")
          .setRequestMarshaller(new Requests<>(FlightAction::encoded))
          .setResponseMarshaller(new Replies<>(FlightMethod::unread))
          .build();

  private FlightMethod() {}

  private static Unread unread(InputStream stream) {
    try {
      stream.close();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return Unread.RESULT;
  }

  /** What a client sends. */
  private record Requests<T>(Function<T, InputStream> encoder)
      implements MethodDescriptor.Marshaller<T> {
    @Override
    public InputStream stream(T request) {
      return encoder.apply(request);
    }

    @Override
    public T parse(InputStream stream) {
      throw new UnsupportedOperationException("a client reads no requests");
    }
  }

  /** What a client receives. */
  private record Replies<T>(Function<InputStream, T> decoder)
      implements MethodDescriptor.Marshaller<T> {
    @Override
    public InputStream stream(T reply) {
      throw new UnsupportedOperationException("a client writes no replies");
    }

    @Override
    public T parse(InputStream stream) {
      return decoder.apply(stream);
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
