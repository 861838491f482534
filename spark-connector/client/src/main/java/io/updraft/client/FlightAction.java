// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import com.google.protobuf.ByteString;
import com.google.protobuf.CodedOutputStream;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;

/**
 * Flight's {@code Action} message, the request of {@code DoAction}.
 *
 * @param type the action's name
 * @param body argument of the action
 */
record FlightAction(String type, ByteString body) {
  private static final int TYPE_FIELD = 1;
  private static final int BODY_FIELD = 2;

  /** Return the encoded message. */
  InputStream encoded() {
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
    return new ByteArrayInputStream(bytes);
  }
}
