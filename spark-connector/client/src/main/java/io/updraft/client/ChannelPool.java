// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.grpc.ConnectivityState;
import io.grpc.ManagedChannel;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;

/**
 * Connections of this JVM, by endpoint and credentials. Creating a connection takes tens of
 * milliseconds, so the pool keeps connections. gRPC closes the socket of an unused connection.
 * Large executors spread their exchanges over several connections, because one connection has one
 * thread. If the endpoint's name resolves to several pods, {@link Replicas} chooses a pod for each
 * call.
 */
final class ChannelPool {
  private static final Map<Key, ChannelPool> POOLS = new HashMap<>();
  private static final ConcurrentHashMap<Endpoint, Replicas> REPLICAS = new ConcurrentHashMap<>();
  private static final Set<Known> ANSWERED = ConcurrentHashMap.newKeySet();

  /**
   * Properties shared by all exchanges on one connection. After a change of the TLS files, later
   * calls use a new connection.
   *
   * @param pod the pod to connect to; null if the endpoint's name has no address
   * @param byName whether gRPC resolves the endpoint's name, because the name has only one address,
   *     the pod's
   */
  private record Key(
      Known known,
      InetAddress pod,
      boolean byName,
      List<Long> filesModifiedMilliseconds,
      Duration connectTimeout,
      int maxMessageBytes) {}

  /**
   * Endpoint and the TLS files used to call it. An endpoint may answer calls with some files and
   * refuse calls with others.
   */
  private record Known(Endpoint endpoint, TlsFiles tls) {
    static Known of(ClientOptions options) {
      return new Known(options.endpoint(), options.tls());
    }
  }

  private final ClientOptions options;
  private final InetAddress pod;
  private final List<SharedChannel> channels = new ArrayList<>();
  private final Circuit circuit = new Circuit();

  private ChannelPool(ClientOptions options, InetAddress pod) {
    this.options = options;
    this.pod = pod;
  }

  /** Return a connection for one more exchange. The caller releases the connection. */
  static Connection acquire(ClientOptions options, String task) {
    return acquire(options, task, addresses(options.endpoint()), ChannelPool::leastLoaded);
  }

  /**
   * Return a connection for a check of the peer's current state. A connection whose last attempt
   * failed is never reused: until gRPC reconnects, its calls would fail even if the peer is
   * listening again.
   */
  static Connection acquireForQuestion(ClientOptions options) {
    return acquire(
        options, null, addresses(options.endpoint()), ChannelPool::leastLoadedThatHasNotFailed);
  }

  /**
   * Return a connection to one of the current addresses of the endpoint's name. If the name has no
   * address, return a connection to the endpoint.
   */
  static Connection acquire(
      ClientOptions options,
      String task,
      List<InetAddress> addresses,
      Function<ChannelPool, SharedChannel> choice) {
    closeAllBut(options.endpoint(), addresses);
    Recovery.Reachability reach = reach(options, addresses);
    if (addresses.isEmpty()) {
      return new Connection(to(options, null, true, choice), null, reach);
    }
    Replicas.Place place =
        REPLICAS
            .computeIfAbsent(options.endpoint(), ignored -> new Replicas())
            .choose(addresses, task, System.nanoTime());
    // The name may have an IPv4 and an IPv6 address. gRPC tries both if it resolves the name
    // itself.
    boolean byName = addresses.equals(List.of(place.address()));
    try {
      return new Connection(to(options, place.address(), byName, choice), place, reach);
    } catch (RuntimeException e) {
      place.release();
      throw e;
    }
  }

  /** Record that an endpoint has answered a call of this JVM. */
  static void answered(ClientOptions options) {
    ANSWERED.add(Known.of(options));
  }

  private static Recovery.Reachability reach(ClientOptions options, List<InetAddress> addresses) {
    if (ANSWERED.contains(Known.of(options))) {
      return Recovery.Reachability.ANSWERED;
    }
    Endpoint endpoint = options.endpoint();
    boolean resolved =
        endpoint.transport() == Endpoint.Transport.UNIX
            ? Files.isDirectory(Path.of(endpoint.path()).toAbsolutePath().getParent())
            : !addresses.isEmpty();
    return resolved ? Recovery.Reachability.RESOLVED : Recovery.Reachability.UNRESOLVED;
  }

  private static synchronized SharedChannel to(
      ClientOptions options,
      InetAddress pod,
      boolean byName,
      Function<ChannelPool, SharedChannel> choice) {
    Key key =
        new Key(
            Known.of(options),
            pod,
            byName,
            options.tls().modifiedMilliseconds(),
            options.connectTimeout(),
            options.maxMessageBytes());
    InetAddress target = byName ? null : pod;
    return choice.apply(POOLS.computeIfAbsent(key, ignored -> new ChannelPool(options, target)));
  }

  /** Close unused connections to addresses that no longer belong to the endpoint. */
  private static synchronized void closeAllBut(Endpoint endpoint, List<InetAddress> addresses) {
    POOLS
        .entrySet()
        .removeIf(
            entry ->
                entry.getKey().pod() != null
                    && entry.getKey().known().endpoint().equals(endpoint)
                    && !leadsTo(addresses, entry.getKey())
                    && entry.getValue().closeIfUnused());
  }

  /** Return whether a connection leads to one of these pods, now and after a reconnect. */
  private static boolean leadsTo(List<InetAddress> addresses, Key key) {
    return key.byName() ? addresses.equals(List.of(key.pod())) : addresses.contains(key.pod());
  }

  private synchronized boolean closeIfUnused() {
    if (channels.stream().anyMatch(channel -> channel.exchanges > 0)) {
      return false;
    }
    channels.forEach(channel -> channel.channel.shutdown());
    return true;
  }

  /**
   * Return the endpoint's addresses of one family (IPv4 or IPv6), because one pod may have an
   * address of each family. The JVM caches the addresses.
   */
  private static List<InetAddress> addresses(Endpoint endpoint) {
    if (endpoint.transport() == Endpoint.Transport.UNIX) {
      return List.of();
    }
    try {
      InetAddress[] all = InetAddress.getAllByName(endpoint.host());
      return Arrays.stream(all).filter(all[0].getClass()::isInstance).toList();
    } catch (UnknownHostException e) {
      // The call then fails and reports why the name has no address.
      return List.of();
    }
  }

  synchronized SharedChannel leastLoaded() {
    SharedChannel best =
        channels.stream().min(Comparator.comparingInt(channel -> channel.exchanges)).orElse(null);
    // Do not open a second connection to a dead address: that attempt would fail too.
    boolean wanted = best == null || (best.exchanges > 0 && !circuit.isOpen());
    if (wanted && channels.size() < EventLoops.THREADS) {
      best = new SharedChannel(Channels.open(options, pod));
      channels.add(best);
    }
    best.exchanges++;
    return best;
  }

  private synchronized SharedChannel leastLoadedThatHasNotFailed() {
    channels.removeIf(SharedChannel::closeIfFailedAndUnused);
    return leastLoaded();
  }

  /** gRPC channel, with the number of exchanges that use it. */
  final class SharedChannel {
    private final ManagedChannel channel;
    private int exchanges;

    private SharedChannel(ManagedChannel channel) {
      this.channel = channel;
    }

    private void connected() {
      circuit.connected();
    }

    private String explanation() {
      return circuit.explanation();
    }

    /** Skip gRPC's own backoff after a failed connection, which grows to minutes. */
    private void wake() {
      if (hasFailed() && circuit.mayAttempt(System.nanoTime())) {
        channel.resetConnectBackoff();
      }
    }

    private boolean hasFailed() {
      return channel.getState(false) == ConnectivityState.TRANSIENT_FAILURE;
    }

    private boolean closeIfFailedAndUnused() {
      boolean closes = exchanges == 0 && hasFailed();
      if (closes) {
        channel.shutdown();
      }
      return closes;
    }

    private void release() {
      synchronized (ChannelPool.this) {
        exchanges--;
      }
    }
  }

  /**
   * Share of one exchange in a connection.
   *
   * @param place the chosen pod; null if the endpoint is a Unix socket or its name has no address
   * @param reach what was known about the endpoint when the connection was requested
   */
  record Connection(SharedChannel shared, Replicas.Place place, Recovery.Reachability reach) {
    ManagedChannel channel() {
      return shared.channel;
    }

    /**
     * Reconnect now if the connection was just refused, unless the circuit delays attempts. Call
     * this before each gRPC call.
     */
    void wake() {
      shared.wake();
    }

    /** Record that a call has reached the peer. */
    void connected() {
      shared.connected();
    }

    /**
     * Return text to append to the error of a call that could not connect; empty while the circuit
     * is closed.
     */
    String explanation() {
      return shared.explanation();
    }

    /** Return whether the call may move to another pod, which may have a free worker. */
    boolean hasAlternatives() {
      return place != null && place.hasAlternatives();
    }

    /** Record why the call leaves its pod. Call this before starting the call that replaces it. */
    void recordDeparture(Replicas.Departure why) {
      if (place != null) {
        place.recordDeparture(why, System.nanoTime());
      }
    }

    /** Record that the call is over. Call this before a replacement may start. */
    void ended() {
      if (place != null) {
        place.ended();
      }
    }

    /** Release the connection; once for each {@link #acquire}. */
    void release() {
      shared.release();
      if (place != null) {
        place.release();
      }
    }
  }
}
