// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.Status;
import io.updraft.proto.v1.ErrorKind;
import java.net.ConnectException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.time.Duration;
import java.util.List;
import java.util.OptionalLong;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

@Timeout(120)
final class AcquireTest {
  @ParameterizedTest
  @EnumSource(Replay.class)
  void a_full_pool_is_asked_again(Replay replay) throws Exception {
    try (TestPool pool = TestPool.of(Behaviours.full("5"), Behaviours.full("5"), Behaviours::echo);
        ExchangeFixture task =
            new ExchangeFixture(ClientOptions.of(Peer.POOL, pool.endpoint()), replay)) {
      assertEquals(List.of(1L, 2L, 3L), task.run(3, 100));
      assertEquals(3, pool.calls().size());
    }
  }

  @ParameterizedTest
  @EnumSource(Replay.class)
  void a_draining_pool_is_asked_again(Replay replay) throws Exception {
    try (TestPool pool = TestPool.of(Behaviours::drains, Behaviours::echo);
        ExchangeFixture task =
            new ExchangeFixture(ClientOptions.of(Peer.POOL, pool.endpoint()), replay)) {
      assertEquals(List.of(1L, 2L, 3L), task.run(3, 100));
    }
  }

  @Test
  void a_pool_that_stays_full_fails_the_exchange_after_the_acquire_timeout() throws Exception {
    try (TestPool pool = TestPool.of(Behaviours.full("20"));
        ExchangeFixture task =
            new ExchangeFixture(
                ClientOptions.of(Peer.POOL, pool.endpoint())
                    .changed(o -> o.acquireTimeout = Duration.ofSeconds(1)),
                Replay.NEVER)) {
      ExchangeException error = assertThrows(ExchangeException.class, () -> task.run(3, 100));
      assertEquals(ErrorKind.ERROR_KIND_POOL_FULL, error.kind());
      assertTrue(error.getMessage().contains("gave no worker within 1.0 s"), error.getMessage());
    }
  }

  @Test
  void a_full_pool_is_asked_until_the_acquire_timeout_is_over() {
    ClientOptions options =
        ClientOptions.of(Peer.POOL, Endpoint.parse("grpc://127.0.0.1:1"))
            .changed(o -> o.acquireTimeout = Duration.ofSeconds(10));
    Recovery recovery = new Recovery(options, new RetryBudget(), 0);
    Failure full = Failure.ofStatus(Status.RESOURCE_EXHAUSTED, options);
    var nothingDone = new Recovery.Progress(false, 0, 0, false, Recovery.Reachability.ANSWERED);
    for (int second = 0; second < 10; second++) {
      var decision =
          recovery.decide(
              full, nothingDone, OptionalLong.empty(), Duration.ofSeconds(second).toNanos());
      var again = assertInstanceOf(Recovery.Decision.Again.class, decision);
      assertTrue(again.pause().compareTo(Duration.ofSeconds(6)) <= 0);
    }
    assertInstanceOf(
        Recovery.Decision.GiveUp.class,
        recovery.decide(full, nothingDone, OptionalLong.of(5), Duration.ofSeconds(10).toNanos()));
  }

  /** Return the pauses of a task that is refused every time and has its own retry budget. */
  private static List<Long> pauses(int tries, OptionalLong hint) {
    ClientOptions options =
        ClientOptions.of(Peer.POOL, Endpoint.parse("grpc://127.0.0.1:1"))
            .changed(o -> o.acquireTimeout = Duration.ofHours(1));
    Recovery recovery = new Recovery(options, new RetryBudget(), 0);
    Failure full = Failure.ofStatus(Status.RESOURCE_EXHAUSTED, options);
    var nothingDone = new Recovery.Progress(false, 0, 0, false, Recovery.Reachability.ANSWERED);
    return IntStream.range(0, tries)
        .mapToObj(
            number ->
                recovery.decide(full, nothingDone, hint, Duration.ofMinutes(number).toNanos()))
        .map(decision -> assertInstanceOf(Recovery.Decision.Again.class, decision))
        .map(again -> again.pause().toMillis())
        .toList();
  }

  @Test
  void a_hint_is_the_least_that_a_task_waits_and_its_waits_grow() {
    List<Long> pauses = pauses(20, OptionalLong.of(500));
    assertTrue(pauses.stream().allMatch(pause -> pause >= 500), pauses.toString());
    assertTrue(pauses.get(0) <= 750, pauses.toString());
    // The wait stops growing at the fourth pause; only the jitter still varies.
    assertTrue(
        pauses.stream().skip(3).allMatch(pause -> pause >= 2_000 && pause <= 6_000),
        pauses.toString());
  }

  @Test
  void tasks_that_were_refused_together_do_not_come_back_together() {
    Set<Long> first =
        IntStream.range(0, 100)
            .mapToObj(task -> pauses(1, OptionalLong.of(500)).get(0))
            .collect(Collectors.toSet());
    assertTrue(first.size() > 30, first.toString());
  }

  @Test
  void the_tasks_of_one_executor_share_a_budget_of_retries() {
    RetryBudget budget = new RetryBudget();
    long interval = RetryBudget.INTERVAL_NANOS;
    for (int retry = 0; retry < RetryBudget.BURST; retry++) {
      assertEquals(0, budget.takeNanos(1_000));
    }
    assertEquals(interval, budget.takeNanos(1_000));
    assertEquals(2 * interval, budget.takeNanos(1_000));
    // Unused retries accumulate only up to the burst.
    long later = 1_000 + 1_000 * interval;
    for (int retry = 0; retry < RetryBudget.BURST; retry++) {
      assertEquals(0, budget.takeNanos(later));
    }
    assertEquals(interval, budget.takeNanos(later));
  }

  private static Failure refused(ClientOptions options) {
    Throwable cause = new ConnectException("Connection refused");
    return Failure.ofStatus(
        Status.UNAVAILABLE.withDescription("io exception").withCause(cause), options);
  }

  private static Recovery.Decision unreachable(
      Recovery.Reachability reach, Function<ClientOptions, Failure> failure, Duration since) {
    ClientOptions options =
        ClientOptions.of(Peer.POOL, Endpoint.parse("grpc://127.0.0.1:1"))
            .changed(
                o -> {
                  o.connectTimeout = Duration.ofSeconds(10);
                  o.acquireTimeout = Duration.ofMinutes(10);
                });
    return new Recovery(options, new RetryBudget(), 0)
        .decide(
            failure.apply(options),
            new Recovery.Progress(false, 0, 0, false, reach),
            OptionalLong.empty(),
            since.toNanos());
  }

  @ParameterizedTest
  @EnumSource(
      value = Recovery.Reachability.class,
      names = {"RESOLVED", "ANSWERED"})
  void a_pool_that_restarts_is_waited_for_as_long_as_one_that_is_full(Recovery.Reachability reach) {
    assertInstanceOf(
        Recovery.Decision.Again.class,
        unreachable(reach, AcquireTest::refused, Duration.ofSeconds(9 * 60 + 59)));
    assertInstanceOf(
        Recovery.Decision.GiveUp.class,
        unreachable(reach, AcquireTest::refused, Duration.ofMinutes(10)));
  }

  @Test
  void a_name_without_an_address_is_not_waited_for() {
    assertInstanceOf(
        Recovery.Decision.GiveUp.class,
        unreachable(
            Recovery.Reachability.UNRESOLVED, AcquireTest::refused, Duration.ofSeconds(10)));
  }

  @Test
  void a_peer_that_answers_and_breaks_the_handshake_is_not_waited_for() {
    Function<ClientOptions, Failure> broken = options -> Failure.unconnected(options.endpoint());
    assertInstanceOf(
        Recovery.Decision.GiveUp.class,
        unreachable(Recovery.Reachability.RESOLVED, broken, Duration.ofSeconds(10)));
    assertInstanceOf(
        Recovery.Decision.Again.class,
        unreachable(Recovery.Reachability.ANSWERED, broken, Duration.ofSeconds(10)));
  }

  @Test
  void a_pool_that_was_away_for_longer_than_the_connect_timeout_is_found_again() throws Exception {
    int port;
    try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      port = socket.getLocalPort();
    }
    ClientOptions options =
        ClientOptions.of(Peer.POOL, Endpoint.parse("grpc://127.0.0.1:" + port))
            .changed(o -> o.connectTimeout = Duration.ofMillis(50));
    try (ExchangeFixture task = new ExchangeFixture(options, Replay.NEVER)) {
      CompletableFuture<List<Long>> answered =
          CompletableFuture.supplyAsync(
              () -> {
                try {
                  return task.run(3, 100);
                } catch (InterruptedException e) {
                  throw new IllegalStateException(e);
                }
              });
      // One second covers several connect timeouts. The task must still be trying by then.
      assertThrows(TimeoutException.class, () -> answered.get(1, TimeUnit.SECONDS));
      TestPool again = TestPool.of(TestServer.onLoopback(port), Behaviours::echo);
      try (again) {
        assertEquals(List.of(1L, 2L, 3L), answered.get());
        assertEquals(1, again.calls().size());
      }
    }
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
        ClientOptions.of(Peer.POOL, endpoint)
            .changed(
                o -> {
                  o.connectTimeout = Duration.ofMillis(300);
                  o.acquireTimeout = Duration.ofMillis(500);
                });
    try (ExchangeFixture task = new ExchangeFixture(options, Replay.REPLAY)) {
      ExchangeException error = assertThrows(ExchangeException.class, () -> task.run(3, 100));
      assertEquals(ErrorKind.ERROR_KIND_POOL_UNAVAILABLE, error.kind());
      assertEquals("UNAVAILABLE", error.code());
      assertTrue(error.getMessage().contains(endpoint.toString()), error.getMessage());
      assertTrue(error.getMessage().contains("spark.updraft.udf.endpoint"), error.getMessage());
    }
  }

  @Test
  void a_worker_that_is_refused_again_after_a_loss_is_waited_for_anew() {
    ClientOptions options =
        ClientOptions.of(Peer.POOL, Endpoint.parse("grpc://127.0.0.1:1"))
            .changed(o -> o.acquireTimeout = Duration.ofSeconds(10));
    Recovery recovery = new Recovery(options, new RetryBudget(), 0);
    long anHour = Duration.ofHours(1).toNanos();
    Failure lost = Failure.ofStatus(Status.OK, options);
    Failure full = Failure.ofStatus(Status.RESOURCE_EXHAUSTED, options);
    var worked = new Recovery.Progress(true, 0, 5, true, Recovery.Reachability.ANSWERED);
    var refused = new Recovery.Progress(false, 4, 5, true, Recovery.Reachability.ANSWERED);
    assertEquals(
        new Recovery.Decision.Again(Duration.ZERO),
        recovery.decide(lost, worked, OptionalLong.empty(), anHour));
    assertInstanceOf(
        Recovery.Decision.Again.class, recovery.decide(full, refused, OptionalLong.of(40), anHour));
  }
}
