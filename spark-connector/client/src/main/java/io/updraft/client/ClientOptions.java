// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Objects;
import java.util.Optional;

/**
 * How a task reaches its pool or writer and what it may hold. Immutable; options with the same
 * endpoint and credentials share a connection in one JVM.
 */
public final class ClientOptions {
  private final Builder values;

  private ClientOptions(Builder builder) {
    this.values = builder.copy();
  }

  /** Starts from the defaults for an endpoint. */
  public static Builder builder(Endpoint endpoint) {
    return new Builder(endpoint);
  }

  /** A builder with these values. */
  public Builder toBuilder() {
    return values.copy();
  }

  /** Whom the calls are for. */
  public Peer peer() {
    return values.peer;
  }

  /** Where the pool listens. */
  public Endpoint endpoint() {
    return values.endpoint;
  }

  /** The bearer token, if the pool wants one. */
  public Optional<String> token() {
    return Optional.ofNullable(values.token);
  }

  /**
   * PEM file with the certificate authorities that sign the pool's certificate; empty: the JVM's.
   */
  public Optional<Path> tlsCaFile() {
    return Optional.ofNullable(values.tlsCaFile);
  }

  /** PEM file with this client's certificate chain, for mutual TLS. */
  public Optional<Path> tlsCertificateFile() {
    return Optional.ofNullable(values.tlsCertificateFile);
  }

  /** PEM file with the private key of {@link #tlsCertificateFile}, PKCS 8. */
  public Optional<Path> tlsKeyFile() {
    return Optional.ofNullable(values.tlsKeyFile);
  }

  /** Whose share of the pool's queue an exchange takes; empty: the application's. */
  public Optional<String> tenant() {
    return Optional.ofNullable(values.tenant);
  }

  /** The W3C trace context to send, if there is one. */
  public Optional<String> traceParent() {
    return Optional.ofNullable(values.traceParent);
  }

  /** How long a connection may take to be made. */
  public Duration connectTimeout() {
    return values.connectTimeout;
  }

  /** How long a full or unavailable pool is asked again before any work was done. */
  public Duration acquireTimeout() {
    return values.acquireTimeout;
  }

  /** How long a wait for the pool may see no progress; zero: no limit but the deadline. */
  public Duration replyTimeout() {
    return values.replyTimeout;
  }

  /** How long a call with nothing to send is silent before it says that it is still there. */
  public Duration keepAlive() {
    return values.keepAlive;
  }

  /** How long an exchange or a file may last in all; zero: no limit. */
  public Duration deadline() {
    return values.deadline;
  }

  /** Batches that may be in flight. */
  public int windowBatches() {
    return values.windowBatches;
  }

  /** Bytes of batches that may be in flight; a single larger batch goes alone. */
  public long windowBytes() {
    return values.windowBytes;
  }

  /** Bytes that one message may have, in either direction. */
  public int maxMessageBytes() {
    return values.maxMessageBytes;
  }

  /**
   * How often in a row an exchange may move to another worker with no batch answered in between.
   */
  public int maxReplays() {
    return values.maxReplays;
  }

  /** Collects options; every setter returns the builder. */
  public static final class Builder {
    private Endpoint endpoint;
    private Peer peer = Peer.POOL;
    private String token;
    private Path tlsCaFile;
    private Path tlsCertificateFile;
    private Path tlsKeyFile;
    private String tenant;
    private String traceParent;
    private Duration connectTimeout = Duration.ofSeconds(10);
    private Duration acquireTimeout = Duration.ofSeconds(120);
    private Duration replyTimeout = Duration.ZERO;
    private Duration deadline = Duration.ZERO;
    private Duration keepAlive = Duration.ofSeconds(30);
    private int windowBatches = 4;
    private long windowBytes = 16L << 20;
    private int maxMessageBytes = 64 << 20;
    private int maxReplays = 3;

    private Builder(Endpoint endpoint) {
      this.endpoint = Objects.requireNonNull(endpoint);
    }

    private Builder copy() {
      Builder copy = new Builder(endpoint);
      copy.peer = peer;
      copy.token = token;
      copy.tlsCaFile = tlsCaFile;
      copy.tlsCertificateFile = tlsCertificateFile;
      copy.tlsKeyFile = tlsKeyFile;
      copy.tenant = tenant;
      copy.traceParent = traceParent;
      copy.connectTimeout = connectTimeout;
      copy.acquireTimeout = acquireTimeout;
      copy.replyTimeout = replyTimeout;
      copy.deadline = deadline;
      copy.keepAlive = keepAlive;
      copy.windowBatches = windowBatches;
      copy.windowBytes = windowBytes;
      copy.maxMessageBytes = maxMessageBytes;
      copy.maxReplays = maxReplays;
      return copy;
    }

    /** See {@link ClientOptions#endpoint}. */
    public Builder endpoint(Endpoint value) {
      endpoint = Objects.requireNonNull(value);
      return this;
    }

    /** See {@link ClientOptions#peer}. */
    public Builder peer(Peer value) {
      peer = Objects.requireNonNull(value);
      return this;
    }

    /** See {@link ClientOptions#token}. */
    public Builder token(String value) {
      token = value;
      return this;
    }

    /** See {@link ClientOptions#tlsCaFile}. */
    public Builder tlsCaFile(Path value) {
      tlsCaFile = value;
      return this;
    }

    /** See {@link ClientOptions#tlsCertificateFile}. */
    public Builder tlsCertificateFile(Path value) {
      tlsCertificateFile = value;
      return this;
    }

    /** See {@link ClientOptions#tlsKeyFile}. */
    public Builder tlsKeyFile(Path value) {
      tlsKeyFile = value;
      return this;
    }

    /** See {@link ClientOptions#tenant}. */
    public Builder tenant(String value) {
      tenant = value;
      return this;
    }

    /** See {@link ClientOptions#traceParent}. */
    public Builder traceParent(String value) {
      traceParent = value;
      return this;
    }

    /** See {@link ClientOptions#connectTimeout}. */
    public Builder connectTimeout(Duration value) {
      connectTimeout = positive("connectTimeout", value);
      return this;
    }

    /** See {@link ClientOptions#acquireTimeout}. */
    public Builder acquireTimeout(Duration value) {
      acquireTimeout = notNegative("acquireTimeout", value);
      return this;
    }

    /** See {@link ClientOptions#replyTimeout}. */
    public Builder replyTimeout(Duration value) {
      replyTimeout = notNegative("replyTimeout", value);
      return this;
    }

    /** See {@link ClientOptions#deadline}. */
    public Builder deadline(Duration value) {
      deadline = notNegative("deadline", value);
      return this;
    }

    /** See {@link ClientOptions#keepAlive}. */
    public Builder keepAlive(Duration value) {
      keepAlive = positive("keepAlive", value);
      return this;
    }

    /** See {@link ClientOptions#windowBatches}. */
    public Builder windowBatches(int value) {
      windowBatches = (int) atLeastOne("windowBatches", value);
      return this;
    }

    /** See {@link ClientOptions#windowBytes}. */
    public Builder windowBytes(long value) {
      windowBytes = atLeastOne("windowBytes", value);
      return this;
    }

    /** See {@link ClientOptions#maxMessageBytes}. */
    public Builder maxMessageBytes(int value) {
      maxMessageBytes = (int) atLeastOne("maxMessageBytes", value);
      return this;
    }

    /** See {@link ClientOptions#maxReplays}. */
    public Builder maxReplays(int value) {
      if (value < 0) {
        throw new IllegalArgumentException("maxReplays = " + value + " is negative");
      }
      maxReplays = value;
      return this;
    }

    /** The options as they stand. */
    public ClientOptions build() {
      if ((tlsCertificateFile == null) != (tlsKeyFile == null)) {
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
