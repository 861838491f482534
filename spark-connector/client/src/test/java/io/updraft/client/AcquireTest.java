// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.Metadata;
import io.grpc.Status;
import io.updraft.proto.v1.ErrorKind;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.time.Duration;
import java.util.List;
import java.util.OptionalLong;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

@Timeout(30)
final class AcquireTest {
  private static final Metadata.Key<String> RETRY_AFTER =
      Metadata.Key.of("retry-after-ms", Metadata.ASCII_STRING_MARSHALLER);

  private static TestPool.Behaviour full(String retryAfter) {
    return call -> {
      Metadata trailers = new Metadata();
      trailers.put(RETRY_AFTER, retryAfter);
      call.close(Status.RESOURCE_EXHAUSTED.withDescription("the queue is full"), trailers);
    };
  }

  private static TestPool.Behaviour drains() {
    return call -> call.fail(ErrorKind.ERROR_KIND_POOL_UNAVAILABLE, "the pool drains", 0);
  }

  @ParameterizedTest
  @EnumSource(Replay.class)
  void a_full_pool_is_asked_again(Replay replay) throws Exception {
    try (TestPool pool = TestPool.of(full("5"), full("5"), Behaviours::echo);
        ExchangeFixture task =
            new ExchangeFixture(ClientOptions.builder(pool.endpoint()).build(), replay)) {
      assertEquals(List.of(1L, 2L, 3L), task.run(3, 100));
      assertEquals(3, pool.calls().size());
    }
  }

  @ParameterizedTest
  @EnumSource(Replay.class)
  void a_draining_pool_is_asked_again(Replay replay) throws Exception {
    try (TestPool pool = TestPool.of(drains(), Behaviours::echo);
        ExchangeFixture task =
            new ExchangeFixture(ClientOptions.builder(pool.endpoint()).build(), replay)) {
      assertEquals(List.of(1L, 2L, 3L), task.run(3, 100));
    }
  }

  @Test
  void a_pool_that_stays_full_fails_the_exchange_after_the_acquire_timeout() throws Exception {
    try (TestPool pool = TestPool.of(full("20"));
        ExchangeFixture task =
            new ExchangeFixture(
                ClientOptions.builder(pool.endpoint())
                    .acquireTimeout(Duration.ofSeconds(1))
                    .build(),
                Replay.NEVER)) {
      ExchangeException error = assertThrows(ExchangeException.class, () -> task.run(3, 100));
      assertEquals(ErrorKind.ERROR_KIND_POOL_FULL, error.kind());
      assertTrue(error.getMessage().contains("gave no worker within 1.0 s"), error.getMessage());
    }
  }

  @Test
  void a_full_pool_is_asked_until_the_acquire_timeout_is_over() {
    ClientOptions options =
        ClientOptions.builder(Endpoint.parse("grpc://127.0.0.1:1"))
            .acquireTimeout(Duration.ofSeconds(10))
            .build();
    Recovery recovery = new Recovery(options, 0);
    Failure full = Failure.ofStatus(Status.RESOURCE_EXHAUSTED, options);
    var nothingDone = new Recovery.Progress(false, 0, 0, false);
    for (int second = 0; second < 10; second++) {
      var decision =
          recovery.decide(
              full, nothingDone, OptionalLong.empty(), Duration.ofSeconds(second).toNanos());
      var again = assertInstanceOf(Recovery.Decision.Again.class, decision);
      assertTrue(again.pause().compareTo(Duration.ofSeconds(2)) <= 0);
    }
    assertInstanceOf(
        Recovery.Decision.GiveUp.class,
        recovery.decide(full, nothingDone, OptionalLong.of(5), Duration.ofSeconds(10).toNanos()));
  }

  @Test
  void an_endpoint_where_nobody_listens_fails_with_its_name_and_the_setting() throws Exception {
    Endpoint nobody;
    try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      nobody = Endpoint.parse("grpc://127.0.0.1:" + socket.getLocalPort());
    }
    assertUnreachable(nobody);
  }

  @Test
  void a_server_that_accepts_and_says_nothing_fails_like_one_that_is_not_there() throws Exception {
    try (ServerSocket silent = new ServerSocket(0, 5, InetAddress.getLoopbackAddress())) {
      assertUnreachable(Endpoint.parse("grpc://127.0.0.1:" + silent.getLocalPort()));
    }
  }

  @Test
  void a_unix_socket_that_is_not_there_fails_with_its_name_and_the_setting() {
    assertUnreachable(Endpoint.parse("grpc+unix:///nowhere/updraft.sock"));
  }

  private static void assertUnreachable(Endpoint endpoint) {
    ClientOptions options =
        ClientOptions.builder(endpoint).connectTimeout(Duration.ofMillis(300)).build();
    long start = System.nanoTime();
    try (ExchangeFixture task = new ExchangeFixture(options, Replay.REPLAY)) {
      ExchangeException error = assertThrows(ExchangeException.class, () -> task.run(3, 100));
      assertEquals(ErrorKind.ERROR_KIND_POOL_UNAVAILABLE, error.kind());
      assertEquals("UNAVAILABLE", error.code());
      assertTrue(error.getMessage().contains(endpoint.toString()), error.getMessage());
      assertTrue(error.getMessage().contains("spark.updraft.udf.endpoint"), error.getMessage());
    }
    assertTrue(System.nanoTime() - start < Duration.ofSeconds(10).toNanos());
  }

  @Test
  void a_worker_that_is_refused_again_after_a_loss_is_waited_for_anew() {
    ClientOptions options =
        ClientOptions.builder(Endpoint.parse("grpc://127.0.0.1:1"))
            .acquireTimeout(Duration.ofSeconds(10))
            .build();
    Recovery recovery = new Recovery(options, 0);
    long anHour = Duration.ofHours(1).toNanos();
    Failure lost = Failure.ofStatus(Status.OK, options);
    Failure full = Failure.ofStatus(Status.RESOURCE_EXHAUSTED, options);
    var worked = new Recovery.Progress(true, 0, 5, true);
    var refused = new Recovery.Progress(false, 4, 5, true);
    assertEquals(
        new Recovery.Decision.Again(Duration.ZERO),
        recovery.decide(lost, worked, OptionalLong.empty(), anHour));
    assertEquals(
        new Recovery.Decision.Again(Duration.ofMillis(40)),
        recovery.decide(full, refused, OptionalLong.of(40), anHour));
  }
}
