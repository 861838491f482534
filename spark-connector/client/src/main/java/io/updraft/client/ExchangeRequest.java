// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import com.google.protobuf.ByteString;
import io.updraft.proto.v1.DeferredPayload;
import io.updraft.proto.v1.ExchangeCommand;
import io.updraft.proto.v1.Limits;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * Opening messages of each call of an exchange.
 *
 * @param command the encoded command
 * @param deferredPayload payload of a session function, if it is too large to send before the pool
 *     has room for the exchange; empty if the command contains the payload
 * @param schemaHeader IPC metadata of the batches
 */
record ExchangeRequest(ByteString command, ByteString deferredPayload, byte[] schemaHeader) {
  private static final ByteString REFUSE_IF_BUSY =
      ExchangeCommand.newBuilder().setRefuseIfBusy(true).build().toByteString();
  private static final ByteString IS_HELPER =
      ExchangeCommand.newBuilder().setIsHelper(true).build().toByteString();

  /**
   * Return the encoded command of one call.
   *
   * @param isHelper whether the call belongs to a helper
   * @param isRefusable whether the pool should refuse the call instead of queueing it
   */
  ByteString command(boolean isHelper, boolean isRefusable) {
    // A protobuf parser merges concatenated messages, so appending an encoded message sets its
    // fields.
    if (isHelper) {
      return command.concat(IS_HELPER);
    }
    return isRefusable ? command.concat(REFUSE_IF_BUSY) : command;
  }

  /** Return the request for a command, adding the client's own limit on reply batches. */
  static ExchangeRequest of(ExchangeCommand asked, Schema schema, ClientOptions options) {
    byte[] schemaHeader = RequestBatch.header(schema);
    Limits.Builder limits = asked.getLimits().toBuilder();
    limits.setMaxReplyBatchBytesInParts(options.maxBatchBytes());
    boolean takesSegment = Segment.areUsable(options.endpoint());
    ExchangeCommand command =
        asked.toBuilder().setLimits(limits).setTakesSegment(takesSegment).build();
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
