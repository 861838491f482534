// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import io.updraft.proto.v1.ExchangeCommand;
import io.updraft.proto.v1.RegisteredFunction;
import java.util.List;
import org.apache.arrow.vector.types.pojo.Schema;
import org.junit.jupiter.api.Test;

/** Encoded commands. */
class ExchangeRequestTest {

  @Test
  void a_refusable_command_says_so_and_is_otherwise_the_same() throws Exception {
    ClientOptions options = ClientOptions.of(Peer.POOL, Endpoint.parse("grpc://pods.invalid:1"));
    ExchangeCommand asked =
        ExchangeCommand.newBuilder()
            .setProtocolVersion(Exchange.PROTOCOL_VERSION)
            .setRegistered(RegisteredFunction.newBuilder().setName("echo"))
            .build();
    ExchangeRequest request = ExchangeRequest.of(asked, new Schema(List.of()), options);
    ExchangeCommand plain = ExchangeCommand.parseFrom(request.command());
    assertFalse(plain.getRefuseIfBusy());
    assertEquals("echo", plain.getRegistered().getName());
    assertEquals(
        plain.toBuilder().setRefuseIfBusy(true).build(),
        ExchangeCommand.parseFrom(request.command(false, true)));
  }
}
