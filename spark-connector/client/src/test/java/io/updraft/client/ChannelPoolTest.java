// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotSame;

import java.net.InetAddress;
import java.util.List;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** Tests of the pod that a task's connections lead to. No test connects. */
class ChannelPoolTest {
  private static final ClientOptions OPTIONS =
      ClientOptions.of(Peer.POOL, Endpoint.parse("grpc://pods.invalid:1"));

  @Test
  @DisplayName("a task's calls stay at the only pod when the name gets more pods")
  void staysWithTheFirstPod() throws Exception {
    InetAddress first = InetAddress.getByName("10.0.0.1");
    List<InetAddress> grown = List.of(InetAddress.getByName("10.0.0.2"), first);
    try (Acquired open = new Acquired("task", List.of(first))) {
      for (int i = 0; i < 4; i++) {
        try (Acquired next = new Acquired("task", grown)) {
          assertEquals(first, next.connection.place().address());
        }
      }
      assertEquals(first, open.connection.place().address());
    }
  }

  @Test
  @DisplayName("a connection to the name serves no pod but its only one")
  void oneConnectionForEachPod() throws Exception {
    List<InetAddress> first = List.of(InetAddress.getByName("10.0.0.1"));
    List<InetAddress> second = List.of(InetAddress.getByName("10.0.0.2"));
    ChannelPool.SharedChannel used;
    try (Acquired one = new Acquired(null, first)) {
      used = one.connection.shared();
    }
    try (Acquired other = new Acquired(null, second)) {
      assertNotSame(used, other.connection.shared());
    }
    try (Acquired open = new Acquired("task", first);
        Acquired next = new Acquired("task", List.of(second.get(0), first.get(0)))) {
      assertEquals(open.connection.place().address(), next.connection.place().address());
      assertNotSame(open.connection.shared(), next.connection.shared());
    }
  }

  private static final class Acquired implements AutoCloseable {
    final ChannelPool.Connection connection;

    Acquired(String task, List<InetAddress> addresses) {
      connection = ChannelPool.acquire(OPTIONS, task, addresses, ChannelPool::leastLoaded);
    }

    @Override
    public void close() {
      connection.release();
    }
  }
}
