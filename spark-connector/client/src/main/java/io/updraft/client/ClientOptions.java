// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import java.io.Serializable;
import java.time.Duration;
import java.util.Objects;
import java.util.function.Consumer;

/**
 * Connection options and limits of a task's exchange with a pool or writer. {@link #of} returns the
 * defaults, and {@link #changed} returns a copy with other values. Options are immutable and are
 * serialized to the executors. In one JVM, options with the same endpoint and credentials share a
 * connection.
 *
 * @param peer kind of service that the calls go to; errors mention it
 * @param endpoint address of the pool or the writer; has no default
 * @param token bearer token, sent with each call as {@code authorization}. Default: empty, no
 *     token. A service that requires a token then fails calls with {@code UNAUTHENTICATED}
 * @param tokenFile file with the bearer token, which takes precedence over {@code token}. Each call
 *     reads the file. If the service refuses the token before any work was done and the file then
 *     contains a new token, the exchange is opened once more. Default: empty
 * @param tls PEM files, used only with {@code grpc+tls}. Default: {@link TlsFiles#NONE}
 * @param tenant tenant used for fair scheduling in the pool's queue. Default: empty, which means
 *     the application
 * @param traceParent W3C trace context, sent with each call as {@code traceparent}. Default: empty
 * @param connectTimeout longest time to make a connection; positive. A call that takes longer
 *     counts as an unreachable endpoint: see {@code acquireTimeout}. Default: 10 s
 * @param acquireTimeout how long an exchange keeps asking a full, draining or restarting pool
 *     before any work was done. Zero means that the exchange asks once. For an endpoint that has
 *     never answered and does not refuse connections, the limit is {@code connectTimeout}. Default:
 *     10 min
 * @param replyTimeout longest wait for the pool without progress, after which the exchange fails
 *     with {@code DEADLINE_EXCEEDED}. Default: zero, which leaves only the deadline
 * @param deadline longest total time of an exchange or a file, including recoveries. After that it
 *     fails with {@code DEADLINE_EXCEEDED}. Default: zero, no limit
 * @param keepAlive how long a call with nothing to send stays silent before it sends a keepalive;
 *     positive. Default: 30 s
 * @param windowBatches how many batches may be in flight in one exchange; at least 1. Default: 4.
 *     The function works on one batch, one is on its way in each direction, and one waits at the
 *     worker. So neither side ever waits for the network
 * @param windowBytes how many bytes of batches may be in flight in one exchange; for a file, how
 *     many bytes may wait on this side. At least 1. A larger batch is sent alone. Default: 16 MiB
 * @param replayBytes how many bytes of consumed but unanswered batches the exchange keeps for a
 *     replay. If the function has consumed more bytes without answering, the exchange cannot be
 *     replayed. A single larger batch is kept anyway. This memory is in addition to the window.
 *     Default: zero, which means four windows, but at least 64 MiB
 * @param maxMessageBytes size limit of one message in bytes, in either direction; at least 1.
 *     Larger batches travel in parts of 16 MiB. Default: 1 GiB, the largest message that a service
 *     can be configured to send ({@code --max-message-bytes})
 * @param maxBatchBytes size limit of a batch's body in bytes, in either direction; at least 1. A
 *     larger batch fails with {@code ERROR_KIND_LIMIT}. Default: 2047 MiB, the largest batch that a
 *     service can be configured to take ({@code --max-batch-bytes})
 * @param maxHelpers how many helpers a task may have at the same time ({@link TaskExchange}); zero
 *     means none. Default: 7
 * @param maxReplays how many times in a row an exchange may move to another worker without an
 *     answered batch between two moves; zero means never. Unused with {@link Replay#NEVER}.
 *     Default: 3
 */
public record ClientOptions(
    Peer peer,
    Endpoint endpoint,
    String token,
    String tokenFile,
    TlsFiles tls,
    String tenant,
    String traceParent,
    Duration connectTimeout,
    Duration acquireTimeout,
    Duration replyTimeout,
    Duration deadline,
    Duration keepAlive,
    int windowBatches,
    long windowBytes,
    long replayBytes,
    int maxMessageBytes,
    int maxBatchBytes,
    int maxHelpers,
    int maxReplays)
    implements Serializable {
  private static final int REPLAY_WINDOWS = 4;
  private static final long LEAST_REPLAY_BYTES = 64L << 20;

  /**
   * Check the limits.
   *
   * @throws NullPointerException if the peer or its endpoint is null
   * @throws IllegalArgumentException if a limit is out of its range
   */
  public ClientOptions {
    Objects.requireNonNull(peer);
    Objects.requireNonNull(endpoint);
    check("connectTimeout", connectTimeout, connectTimeout.compareTo(Duration.ZERO) > 0);
    check("acquireTimeout", acquireTimeout, !acquireTimeout.isNegative());
    check("replyTimeout", replyTimeout, !replyTimeout.isNegative());
    check("deadline", deadline, !deadline.isNegative());
    check("keepAlive", keepAlive, keepAlive.compareTo(Duration.ZERO) > 0);
    check("windowBatches", windowBatches, windowBatches >= 1);
    check("windowBytes", windowBytes, windowBytes >= 1);
    check("replayBytes", replayBytes, replayBytes >= 0);
    check("maxMessageBytes", maxMessageBytes, maxMessageBytes >= 1);
    check("maxBatchBytes", maxBatchBytes, maxBatchBytes >= 1);
    check("maxHelpers", maxHelpers, maxHelpers >= 0);
    check("maxReplays", maxReplays, maxReplays >= 0);
  }

  private static void check(String name, Object value, boolean fits) {
    if (!fits) {
      throw new IllegalArgumentException(name + " = " + value + " is too small");
    }
  }

  /** Return the defaults for an endpoint. */
  public static ClientOptions of(Peer peer, Endpoint endpoint) {
    Draft draft = new Draft();
    draft.peer = peer;
    draft.endpoint = endpoint;
    return draft.options();
  }

  /** Return a copy of these options after a change. */
  public ClientOptions changed(Consumer<Draft> change) {
    Draft draft = new Draft(this);
    change.accept(draft);
    return draft.options();
  }

  @Override
  public long replayBytes() {
    return replayBytes > 0
        ? replayBytes
        : Math.max(LEAST_REPLAY_BYTES, REPLAY_WINDOWS * windowBytes);
  }

  /** Return text without the token, because logs and plans print options. */
  @Override
  public String toString() {
    return "ClientOptions[" + endpoint + "]";
  }

  /**
   * Mutable options, initialized with their defaults. Each field is the option of the same name.
   */
  public static final class Draft {
    public Peer peer;
    public Endpoint endpoint;
    public String token = "";
    public String tokenFile = "";
    public TlsFiles tls = TlsFiles.NONE;
    public String tenant = "";
    public String traceParent = "";
    public Duration connectTimeout = Duration.ofSeconds(10);
    public Duration acquireTimeout = Duration.ofMinutes(10);
    public Duration replyTimeout = Duration.ZERO;
    public Duration deadline = Duration.ZERO;
    public Duration keepAlive = Duration.ofSeconds(30);
    public int windowBatches = 4;
    public long windowBytes = 16L << 20;
    public long replayBytes;
    public int maxMessageBytes = 1 << 30;
    public int maxBatchBytes = 2047 << 20;
    public int maxHelpers = 7;
    public int maxReplays = 3;

    /** Create a draft with the defaults, but without a peer and an endpoint. */
    public Draft() {}

    private Draft(ClientOptions options) {
      peer = options.peer;
      endpoint = options.endpoint;
      token = options.token;
      tokenFile = options.tokenFile;
      tls = options.tls;
      tenant = options.tenant;
      traceParent = options.traceParent;
      connectTimeout = options.connectTimeout;
      acquireTimeout = options.acquireTimeout;
      replyTimeout = options.replyTimeout;
      deadline = options.deadline;
      keepAlive = options.keepAlive;
      windowBatches = options.windowBatches;
      windowBytes = options.windowBytes;
      replayBytes = options.replayBytes;
      maxMessageBytes = options.maxMessageBytes;
      maxBatchBytes = options.maxBatchBytes;
      maxHelpers = options.maxHelpers;
      maxReplays = options.maxReplays;
    }

    private ClientOptions options() {
      return new ClientOptions(
          peer,
          endpoint,
          token,
          tokenFile,
          tls,
          tenant,
          traceParent,
          connectTimeout,
          acquireTimeout,
          replyTimeout,
          deadline,
          keepAlive,
          windowBatches,
          windowBytes,
          replayBytes,
          maxMessageBytes,
          maxBatchBytes,
          maxHelpers,
          maxReplays);
    }
  }
}
