// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.Metadata;
import io.grpc.Status;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(120)
final class CircuitTest {
  private static final int TASKS = 8;

  private final Circuit circuit = new Circuit((least, most) -> most);

  private void open() {
    for (int attempt = 0; attempt < Circuit.FREE_ATTEMPTS; attempt++) {
      assertTrue(circuit.mayAttempt(0));
    }
  }

  @Test
  void the_first_attempts_wait_for_nothing_and_then_the_circuit_is_open() {
    assertFalse(circuit.isOpen());
    assertEquals("", circuit.explanation());
    open();
    assertTrue(circuit.isOpen());
    assertTrue(circuit.explanation().contains("open after 5 attempts"), circuit.explanation());
    assertFalse(circuit.mayAttempt(Circuit.FIRST_INTERVAL_NANOS - 1));
  }

  @Test
  void one_attempt_at_a_time_goes_through_an_open_circuit_and_the_intervals_grow_to_a_limit() {
    open();
    long now = 0;
    long interval = Circuit.FIRST_INTERVAL_NANOS;
    for (int attempt = 0; attempt < 10; attempt++) {
      assertFalse(circuit.mayAttempt(now + interval - 1));
      now += interval;
      assertTrue(circuit.mayAttempt(now));
      assertFalse(circuit.mayAttempt(now));
      interval = Math.min(2 * interval, Circuit.LONGEST_INTERVAL_NANOS);
    }
  }

  @Test
  void intervals_differ_between_executors() {
    List<Long> bounds = new ArrayList<>();
    Circuit jittered =
        new Circuit(
            (least, most) -> {
              bounds.add(least);
              bounds.add(most);
              return least;
            });
    for (int attempt = 0; attempt < Circuit.FREE_ATTEMPTS; attempt++) {
      assertTrue(jittered.mayAttempt(0));
    }
    long first = Circuit.FIRST_INTERVAL_NANOS;
    assertEquals(List.of(first / 2, first), bounds);
    assertTrue(jittered.mayAttempt(first / 2));
  }

  @Test
  void a_connection_closes_the_circuit() {
    open();
    circuit.connected();
    assertFalse(circuit.isOpen());
    open();
  }

  @Test
  void a_call_that_could_not_connect_tells_of_the_circuit() {
    ClientOptions options =
        ClientOptions.of(Peer.POOL, Endpoint.parse("grpc://127.0.0.1:1"))
            .changed(
                o -> {
                  o.connectTimeout = Duration.ofNanos(1_000);
                  o.acquireTimeout = Duration.ZERO;
                });
    ExchangeCore core = new ExchangeCore(options, Replay.NEVER, 0);
    TestCall call = new TestCall(false);
    assertTrue(core.begin(call));
    Status refused = Status.UNAVAILABLE.withDescription("io exception");
    core.onClosed(call, refused, new Metadata(), Duration.ofSeconds(1).toNanos());
    String message = assertThrows(ExchangeException.class, core::next).getMessage();
    assertTrue(message.endsWith("io exception (explained)"), message);
  }

  @Test
  void the_tasks_of_one_executor_share_attempts_to_reach_a_dead_endpoint() throws Exception {
    AtomicInteger accepted = new AtomicInteger();
    ExecutorService threads = Executors.newCachedThreadPool();
    try (ServerSocket dead = new ServerSocket(0, 50, InetAddress.getLoopbackAddress())) {
      threads.submit(() -> hangUp(dead, accepted));
      ClientOptions options =
          ClientOptions.of(Peer.POOL, Endpoint.parse("grpc://127.0.0.1:" + dead.getLocalPort()))
              .changed(
                  o -> {
                    o.connectTimeout = Duration.ofSeconds(3);
                    o.acquireTimeout = Duration.ofSeconds(3);
                  });
      List<Future<String>> failures = new ArrayList<>();
      for (int task = 0; task < TASKS; task++) {
        failures.add(threads.submit(() -> failure(options)));
      }
      for (Future<String> failure : failures) {
        assertTrue(failure.get().contains("the circuit is open"), failure.get());
      }
      // Free attempts, attempts that gRPC makes by itself on each connection, and one per interval.
      int most = Circuit.FREE_ATTEMPTS + 4 * EventLoops.THREADS + 10;
      assertTrue(accepted.get() <= most, accepted + " attempts");
    } finally {
      threads.shutdownNow();
    }
  }

  private static void hangUp(ServerSocket dead, AtomicInteger accepted) {
    try {
      while (true) {
        dead.accept().close();
        accepted.incrementAndGet();
      }
    } catch (IOException e) {
      // The test is over.
    }
  }

  private static String failure(ClientOptions options) {
    try (ExchangeFixture task = new ExchangeFixture(options, Replay.REPLAY)) {
      return assertThrows(ExchangeException.class, () -> task.run(1, 100)).getMessage();
    }
  }
}
