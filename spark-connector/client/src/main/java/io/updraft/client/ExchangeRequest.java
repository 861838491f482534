// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import com.google.protobuf.ByteString;
import io.updraft.proto.v1.DeferredFunction;
import io.updraft.proto.v1.ExchangeCommand;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * What opens each call of an exchange.
 *
 * @param command the command, encoded
 * @param deferredFunction a session function that is too large to be sent before the pool has room
 *     for it; empty when the command has the function
 * @param schemaHeader IPC metadata of the batches
 */
record ExchangeRequest(ByteString command, ByteString deferredFunction, byte[] schemaHeader) {
  static ExchangeRequest of(ExchangeCommand command, Schema schema) {
    byte[] schemaHeader = RequestBatch.header(schema);
    boolean large = command.getSerializedSize() > Admission.BYTES_BEFORE_ADMISSION;
    if (!large || !command.getFunction().hasSession()) {
      return new ExchangeRequest(command.toByteString(), ByteString.EMPTY, schemaHeader);
    }
    ByteString function = command.getFunction().toByteString();
    ExchangeCommand withoutFunction =
        command.toBuilder()
            .clearFunction()
            .setDeferredFunction(DeferredFunction.newBuilder().setSizeBytes(function.size()))
            .build();
    return new ExchangeRequest(withoutFunction.toByteString(), function, schemaHeader);
  }
}
