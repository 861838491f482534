// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import com.google.protobuf.ByteString;
import io.updraft.proto.v1.DeferredPayload;
import io.updraft.proto.v1.ExchangeCommand;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * What opens each call of an exchange.
 *
 * @param command the command, encoded
 * @param deferredPayload the payload of a session function that is too large to be sent before the
 *     pool has room for it; empty when the command has the payload
 * @param schemaHeader IPC metadata of the batches
 */
record ExchangeRequest(ByteString command, ByteString deferredPayload, byte[] schemaHeader) {
  static ExchangeRequest of(ExchangeCommand command, Schema schema) {
    byte[] schemaHeader = RequestBatch.header(schema);
    boolean large = command.getSerializedSize() > Admission.BYTES_BEFORE_ADMISSION;
    if (!large || !command.hasSession() || command.getPayload().isEmpty()) {
      return new ExchangeRequest(command.toByteString(), ByteString.EMPTY, schemaHeader);
    }
    ByteString payload = command.getPayload();
    ExchangeCommand withoutPayload =
        command.toBuilder()
            .clearPayload()
            .setDeferredPayload(DeferredPayload.newBuilder().setSizeBytes(payload.size()))
            .build();
    return new ExchangeRequest(withoutPayload.toByteString(), payload, schemaHeader);
  }
}
