// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.grpc.ManagedChannel;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The JVM's connections, by endpoint and credentials. Making one costs tens of milliseconds, so
 * they are kept; one that nobody uses closes its socket by itself. Large executors spread their
 * exchanges over several connections, because one connection has one thread.
 */
final class ChannelPool {
  private static final int CORES_PER_CONNECTION = 4;

  /** Connections that one endpoint may have. */
  static final int CONNECTIONS =
      Math.max(1, Math.min(8, Runtime.getRuntime().availableProcessors() / CORES_PER_CONNECTION));

  private static final ConcurrentHashMap<Key, ChannelPool> POOLS = new ConcurrentHashMap<>();

  /** What makes two exchanges fit for one connection. Files are followed when they are renewed. */
  private record Key(
      Endpoint endpoint,
      Credential ca,
      Credential certificate,
      Credential key,
      Duration connectTimeout,
      int maxMessageBytes) {}

  private record Credential(Path file, long modifiedMilliseconds) {
    static Credential of(Path file) {
      return new Credential(file, file == null ? 0 : file.toFile().lastModified());
    }
  }

  private final ClientOptions options;
  private final List<SharedChannel> channels = new ArrayList<>();

  private ChannelPool(ClientOptions options) {
    this.options = options;
  }

  /** A connection for one more exchange; the caller releases it. */
  static SharedChannel acquire(ClientOptions options) {
    Key key =
        new Key(
            options.endpoint(),
            Credential.of(options.tlsCaFile().orElse(null)),
            Credential.of(options.tlsCertificateFile().orElse(null)),
            Credential.of(options.tlsKeyFile().orElse(null)),
            options.connectTimeout(),
            options.maxMessageBytes());
    return POOLS.computeIfAbsent(key, ignored -> new ChannelPool(options)).leastLoaded();
  }

  private synchronized SharedChannel leastLoaded() {
    SharedChannel best = null;
    for (SharedChannel channel : channels) {
      if (best == null || channel.exchanges < best.exchanges) {
        best = channel;
      }
    }
    boolean busy = best == null || best.exchanges > 0;
    if (busy && channels.size() < CONNECTIONS) {
      best = new SharedChannel(Channels.open(options));
      channels.add(best);
    }
    best.exchanges++;
    return best;
  }

  /** A connection and how many exchanges use it. */
  final class SharedChannel {
    private final ManagedChannel channel;
    private int exchanges;

    private SharedChannel(ManagedChannel channel) {
      this.channel = channel;
    }

    ManagedChannel channel() {
      return channel;
    }

    /** The exchange is over; once for each {@link #acquire}. */
    void release() {
      synchronized (ChannelPool.this) {
        exchanges--;
      }
    }
  }
}
