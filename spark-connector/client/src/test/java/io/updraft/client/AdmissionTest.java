// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import io.updraft.proto.v1.ExchangeCommand;
import io.updraft.proto.v1.PayloadWanted;
import io.updraft.proto.v1.ReplyMetadata;
import io.updraft.proto.v1.SessionFunction;
import java.io.ByteArrayOutputStream;
import java.time.Duration;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Tests of an exchange before admission: the data it sends, and the loss of its pool. */
@Timeout(120)
final class AdmissionTest {
  @Test
  void a_full_pool_gets_nothing_large_before_it_admits_the_exchange() throws Exception {
    CompletableFuture<Long> early = new CompletableFuture<>();
    TestPool.Behaviour refuses =
        call -> {
          early.complete((long) call.receiveEarly().encode().length);
          Behaviours.full("5").run(call);
        };
    TestPool.Behaviour admitsLate =
        call -> {
          FlightData opening = call.receiveEarly();
          assertTrue(call.isSilent(), "a batch came before the exchange was admitted");
          call.admit();
          Behaviours.echo(call, opening);
        };
    try (TestPool pool = TestPool.of(refuses, admitsLate);
        ExchangeFixture task =
            new ExchangeFixture(ClientOptions.of(Peer.POOL, pool.endpoint()), Replay.REPLAY)) {
      assertEquals(List.of(1L, 2L, 3L), task.run(3, 100_000));
      assertTrue(early.get() < 10_000);
    }
  }

  @Test
  void a_large_payload_is_sent_when_the_pool_asks_for_it() throws Exception {
    byte[] pickle = new byte[3 << 20];
    new Random(1).nextBytes(pickle);
    ExchangeCommand command =
        ExchangeFixture.COMMAND.toBuilder()
            .setSession(SessionFunction.getDefaultInstance())
            .setPayload(ByteString.copyFrom(pickle))
            .build();
    CompletableFuture<byte[]> arrived = new CompletableFuture<>();
    TestPool.Behaviour asks =
        call -> {
          FlightData opening = call.receiveEarly();
          ExchangeCommand envelope = opening.command();
          long size = envelope.getDeferredPayload().getSizeBytes();
          assertTrue(envelope.getPayload().isEmpty() && opening.encode().length < 10_000);
          call.send(
              FlightData.reply(
                  ReplyMetadata.newBuilder()
                      .setPayloadWanted(PayloadWanted.getDefaultInstance())
                      .build()));
          ByteArrayOutputStream bytes = new ByteArrayOutputStream();
          while (bytes.size() < size) {
            FlightData part = call.receiveEarly();
            assertEquals(bytes.size(), part.request().getPayload().getOffset());
            bytes.writeBytes(part.body());
          }
          arrived.complete(bytes.toByteArray());
          Behaviours.echo(call, opening);
        };
    try (TestPool pool = TestPool.of(Behaviours.full("5"), asks);
        ExchangeFixture task =
            new ExchangeFixture(
                ClientOptions.of(Peer.POOL, pool.endpoint()), command, Replay.REPLAY)) {
      assertEquals(List.of(1L, 2L, 3L), task.run(3, 100));
      assertArrayEquals(pickle, arrived.get());
    }
  }

  /**
   * Return a behavior that keeps the exchange queued beyond the acquire timeout, then runs {@code
   * end}.
   */
  private static TestPool.Behaviour inTheQueue(TestPool.Behaviour end) {
    return call -> {
      call.receiveEarly();
      Thread.sleep(700);
      end.run(call);
    };
  }

  private static ClientOptions impatient(TestPool pool) {
    return ClientOptions.of(Peer.POOL, pool.endpoint())
        .changed(o -> o.acquireTimeout = Duration.ofMillis(500));
  }

  @ParameterizedTest
  @ValueSource(ints = {100, 100_000})
  void an_exchange_that_waited_in_the_queue_outlives_a_drain(int rows) throws Exception {
    try (TestPool pool = TestPool.of(inTheQueue(Behaviours::drains), Behaviours::echo);
        ExchangeFixture task = new ExchangeFixture(impatient(pool), Replay.NEVER)) {
      assertEquals(List.of(1L, 2L, 3L), task.run(3, rows));
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {100, 100_000})
  void an_exchange_in_the_queue_of_a_pool_that_dies_moves_on(int rows) throws Exception {
    try (TestPool pool = TestPool.of(inTheQueue(Behaviours::vanishes), Behaviours::echo);
        ExchangeFixture task = new ExchangeFixture(impatient(pool), Replay.NEVER)) {
      assertEquals(List.of(1L, 2L, 3L), task.run(3, rows));
    }
  }
}
