// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import com.google.protobuf.ByteString;
import com.google.protobuf.CodedOutputStream;
import io.grpc.MethodDescriptor;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;

/**
 * Flight's {@code Action}: the request of {@code DoAction}. The results are not read: only the
 * call's status is.
 *
 * @param type the action's name
 * @param body what the action is given
 */
record FlightAction(String type, ByteString body) {
  private static final int TYPE_FIELD = 1;
  private static final int BODY_FIELD = 2;

  /** Stands for a result. */
  enum Unread {
    RESULT
  }

  static final MethodDescriptor<FlightAction, Unread> DO_ACTION =
      MethodDescriptor.<FlightAction, Unread>newBuilder()
          .setType(MethodDescriptor.MethodType.SERVER_STREAMING)
          .setFullMethodName("arrow.flight.protocol.FlightService/DoAction")
          .setRequestMarshaller(new RequestMarshaller())
          .setResponseMarshaller(new ResultMarshaller())
          .build();

  private byte[] encoded() {
    int sizeBytes =
        CodedOutputStream.computeStringSize(TYPE_FIELD, type)
            + CodedOutputStream.computeBytesSize(BODY_FIELD, body);
    byte[] bytes = new byte[sizeBytes];
    CodedOutputStream output = CodedOutputStream.newInstance(bytes);
    try {
      output.writeString(TYPE_FIELD, type);
      output.writeBytes(BODY_FIELD, body);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    output.checkNoSpaceLeft();
    return bytes;
  }

  private static final class RequestMarshaller
      implements MethodDescriptor.Marshaller<FlightAction> {
    @Override
    public InputStream stream(FlightAction action) {
      return new ByteArrayInputStream(action.encoded());
    }

    @Override
    public FlightAction parse(InputStream stream) {
      throw new UnsupportedOperationException("a client reads no requests");
    }
  }

  private static final class ResultMarshaller implements MethodDescriptor.Marshaller<Unread> {
    @Override
    public InputStream stream(Unread value) {
      throw new UnsupportedOperationException("a client writes no replies");
    }

    @Override
    public Unread parse(InputStream stream) {
      try {
        stream.close();
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
      return Unread.RESULT;
    }
  }
}
