// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Objects;
import java.util.Optional;

/**
 * Connection options and limits of a task's exchange with a pool or writer. Immutable; options with
 * the same endpoint and credentials share a connection in one JVM.
 */
public final class ClientOptions {
  private static final int REPLAY_WINDOWS = 4;

  /**
   * Batches in flight: one that the function works on, one on its way in each direction, and one
   * that waits at the worker, so that neither side ever waits for the network.
   */
  private static final int WINDOW_BATCHES = 4;

  /**
   * Default limit of a message: the largest that a service can be configured to send ({@code
   * --max-message-bytes}). Messages of this side are far smaller, because larger batches travel in
   * parts of 16 MiB.
   */
  private static final int MAX_MESSAGE_BYTES = 1 << 30;

  /**
   * Default limit of a batch: the largest that a service can be configured to take ({@code
   * --max-batch-bytes}), so that the service's setting alone decides.
   */
  private static final int MAX_BATCH_BYTES = 2047 << 20;

  private static final long LEAST_REPLAY_BYTES = 64L << 20;

  private final Builder values;

  private ClientOptions(Builder builder) {
    this.values = builder.copy();
  }

  /**
   * Return a builder with the defaults for an endpoint.
   *
   * @throws NullPointerException if the endpoint is null
   */
  public static Builder builder(Endpoint endpoint) {
    return new Builder(endpoint);
  }

  /** Return a builder with these values. */
  public Builder toBuilder() {
    return values.copy();
  }

  /** Return the kind of peer that the calls are for; errors name it. Default: {@link Peer#POOL}. */
  public Peer peer() {
    return values.peer;
  }

  /** Return the address of the pool or the writer. Has no default and is never null. */
  public Endpoint endpoint() {
    return values.endpoint;
  }

  /**
   * Return the bearer token, sent with each call as {@code authorization}. Default: empty, no
   * token; a service that requires one then fails calls with {@code UNAUTHENTICATED}.
   */
  public Optional<String> token() {
    return Optional.ofNullable(values.token);
  }

  /**
   * Return the file with the bearer token; it takes precedence over {@link #token}. Each call reads
   * it. An exchange that was refused before any work was done is opened once more if the file has
   * another token by then. Default: empty.
   */
  public Optional<Path> tokenFile() {
    return Optional.ofNullable(values.tokenFile);
  }

  /** Return the TLS files; used only with {@code grpc+tls}. Default: {@link TlsFiles#NONE}. */
  public TlsFiles tls() {
    return values.tls;
  }

  /**
   * Return the tenant used for fair scheduling in the pool's queue. Default: empty, which means the
   * application.
   */
  public Optional<String> tenant() {
    return Optional.ofNullable(values.tenant);
  }

  /** Return the W3C trace context, sent with each call as {@code traceparent}. Default: empty. */
  public Optional<String> traceParent() {
    return Optional.ofNullable(values.traceParent);
  }

  /**
   * Return the longest time to make a connection; positive. Default: 10 s. A call that takes longer
   * counts as an unreachable endpoint: see {@link #acquireTimeout}.
   */
  public Duration connectTimeout() {
    return values.connectTimeout;
  }

  /**
   * Return how long an exchange keeps asking a full, draining or restarting pool before any work
   * was done; zero means that it asks once. Default: 120 s. For an endpoint that has never answered
   * and does not refuse connections, the limit is {@link #connectTimeout}.
   */
  public Duration acquireTimeout() {
    return values.acquireTimeout;
  }

  /**
   * Return the longest wait for the pool without progress, after which the exchange fails with
   * {@code DEADLINE_EXCEEDED}. Default: zero, which leaves only the deadline.
   */
  public Duration replyTimeout() {
    return values.replyTimeout;
  }

  /**
   * Return how long a call with nothing to send stays silent before it sends a keepalive; positive.
   * Default: 30 s.
   */
  public Duration keepAlive() {
    return values.keepAlive;
  }

  /**
   * Return the longest total time of an exchange or a file, its recoveries included, after which it
   * fails with {@code DEADLINE_EXCEEDED}. Default: zero, no limit.
   */
  public Duration deadline() {
    return values.deadline;
  }

  /** Return how many batches may be in flight in one exchange; at least 1. Default: 4. */
  public int windowBatches() {
    return values.windowBatches;
  }

  /**
   * Return how many bytes of batches may be in flight in one exchange, or wait here for a file; at
   * least 1. A larger batch is sent alone. Default: 16 MiB.
   */
  public long windowBytes() {
    return values.windowBytes;
  }

  /**
   * Return how many bytes of consumed but unanswered batches the exchange keeps for a replay; at
   * least 1. The exchange is not replayed if the function has consumed more without answering, but
   * a single larger batch is kept. This memory is in addition to the window. Default: four windows,
   * at least 64 MiB.
   */
  public long replayBytes() {
    return values.replayBytes > 0
        ? values.replayBytes
        : Math.max(LEAST_REPLAY_BYTES, REPLAY_WINDOWS * values.windowBytes);
  }

  /**
   * Return the size limit of one message in bytes, in either direction; at least 1. Larger batches
   * travel in parts. Default: 1 GiB.
   */
  public int maxMessageBytes() {
    return values.maxMessageBytes;
  }

  /**
   * Return the size limit of a batch's body in bytes, in either direction; at least 1. A larger
   * batch fails with {@code ERROR_KIND_LIMIT}. Default: 2047 MiB.
   */
  public int maxBatchBytes() {
    return values.maxBatchBytes;
  }

  /**
   * Return how many times in a row an exchange may move to another worker with no batch answered in
   * between; zero means never. Unused with {@link Replay#NEVER}. Default: 3.
   */
  public int maxReplays() {
    return values.maxReplays;
  }

  /** Builder of options; every setter returns the builder. */
  public static final class Builder implements Cloneable {
    private Endpoint endpoint;
    private Peer peer = Peer.POOL;
    private String token;
    private Path tokenFile;
    private TlsFiles tls = TlsFiles.NONE;
    private String tenant;
    private String traceParent;
    private Duration connectTimeout = Duration.ofSeconds(10);
    private Duration acquireTimeout = Duration.ofSeconds(120);
    private Duration replyTimeout = Duration.ZERO;
    private Duration deadline = Duration.ZERO;
    private Duration keepAlive = Duration.ofSeconds(30);
    private int windowBatches = WINDOW_BATCHES;
    private long windowBytes = 16L << 20;
    private long replayBytes;
    private int maxMessageBytes = MAX_MESSAGE_BYTES;
    private int maxBatchBytes = MAX_BATCH_BYTES;
    private int maxReplays = 3;

    private Builder(Endpoint endpoint) {
      this.endpoint = Objects.requireNonNull(endpoint);
    }

    private Builder copy() {
      try {
        return (Builder) clone();
      } catch (CloneNotSupportedException e) {
        throw new AssertionError(e);
      }
    }

    /**
     * Set {@link ClientOptions#endpoint}.
     *
     * @throws NullPointerException if the value is null
     */
    public Builder endpoint(Endpoint value) {
      endpoint = Objects.requireNonNull(value);
      return this;
    }

    /** Set {@link ClientOptions#peer}. */
    public Builder peer(Peer value) {
      peer = Objects.requireNonNull(value);
      return this;
    }

    /** Set {@link ClientOptions#token}. */
    public Builder token(String value) {
      token = value;
      return this;
    }

    /** Set {@link ClientOptions#tokenFile}. */
    public Builder tokenFile(Path value) {
      tokenFile = value;
      return this;
    }

    /** Set {@link ClientOptions#tls}. */
    public Builder tls(TlsFiles value) {
      tls = Objects.requireNonNull(value);
      return this;
    }

    /** Set {@link ClientOptions#tenant}. */
    public Builder tenant(String value) {
      tenant = value;
      return this;
    }

    /** Set {@link ClientOptions#traceParent}. */
    public Builder traceParent(String value) {
      traceParent = value;
      return this;
    }

    /**
     * Set {@link ClientOptions#connectTimeout}.
     *
     * @throws IllegalArgumentException if the value is zero or negative
     */
    public Builder connectTimeout(Duration value) {
      connectTimeout = positive("connectTimeout", value);
      return this;
    }

    /**
     * Set {@link ClientOptions#acquireTimeout}.
     *
     * @throws IllegalArgumentException if the value is negative
     */
    public Builder acquireTimeout(Duration value) {
      acquireTimeout = notNegative("acquireTimeout", value);
      return this;
    }

    /**
     * Set {@link ClientOptions#replyTimeout}.
     *
     * @throws IllegalArgumentException if the value is negative
     */
    public Builder replyTimeout(Duration value) {
      replyTimeout = notNegative("replyTimeout", value);
      return this;
    }

    /**
     * Set {@link ClientOptions#deadline}.
     *
     * @throws IllegalArgumentException if the value is negative
     */
    public Builder deadline(Duration value) {
      deadline = notNegative("deadline", value);
      return this;
    }

    /**
     * Set {@link ClientOptions#keepAlive}.
     *
     * @throws IllegalArgumentException if the value is zero or negative
     */
    public Builder keepAlive(Duration value) {
      keepAlive = positive("keepAlive", value);
      return this;
    }

    /**
     * Set {@link ClientOptions#windowBatches}.
     *
     * @throws IllegalArgumentException if the value is less than 1
     */
    public Builder windowBatches(int value) {
      windowBatches = (int) atLeastOne("windowBatches", value);
      return this;
    }

    /**
     * Set {@link ClientOptions#windowBytes}.
     *
     * @throws IllegalArgumentException if the value is less than 1
     */
    public Builder windowBytes(long value) {
      windowBytes = atLeastOne("windowBytes", value);
      return this;
    }

    /**
     * Set {@link ClientOptions#replayBytes}.
     *
     * @throws IllegalArgumentException if the value is less than 1
     */
    public Builder replayBytes(long value) {
      replayBytes = atLeastOne("replayBytes", value);
      return this;
    }

    /**
     * Set {@link ClientOptions#maxMessageBytes}.
     *
     * @throws IllegalArgumentException if the value is less than 1
     */
    public Builder maxMessageBytes(int value) {
      maxMessageBytes = (int) atLeastOne("maxMessageBytes", value);
      return this;
    }

    /**
     * Set {@link ClientOptions#maxBatchBytes}.
     *
     * @throws IllegalArgumentException if the value is less than 1
     */
    public Builder maxBatchBytes(int value) {
      maxBatchBytes = (int) atLeastOne("maxBatchBytes", value);
      return this;
    }

    /**
     * Set {@link ClientOptions#maxReplays}.
     *
     * @throws IllegalArgumentException if the value is negative
     */
    public Builder maxReplays(int value) {
      if (value < 0) {
        throw new IllegalArgumentException("maxReplays = " + value + " is negative");
      }
      maxReplays = value;
      return this;
    }

    /**
     * Return options with the current values; the builder remains usable.
     *
     * @throws IllegalArgumentException if TLS has a certificate without its key, or a key without
     *     its certificate
     */
    public ClientOptions build() {
      if (tls.certificate().isPresent() != tls.key().isPresent()) {
        throw new IllegalArgumentException(
            peer.tlsCertificateFileSetting() + " and " + peer.tlsKeyFileSetting() + " go together");
      }
      return new ClientOptions(this);
    }

    private static long atLeastOne(String name, long value) {
      if (value < 1) {
        throw new IllegalArgumentException(name + " = " + value + " is less than 1");
      }
      return value;
    }

    private static Duration positive(String name, Duration value) {
      if (value.isZero() || value.isNegative()) {
        throw new IllegalArgumentException(name + " = " + value + " is not positive");
      }
      return value;
    }

    private static Duration notNegative(String name, Duration value) {
      if (value.isNegative()) {
        throw new IllegalArgumentException(name + " = " + value + " is negative");
      }
      return value;
    }
  }
}
