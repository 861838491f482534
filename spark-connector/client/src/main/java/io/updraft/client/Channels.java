// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.grpc.Codec;
import io.grpc.DecompressorRegistry;
import io.grpc.ManagedChannel;
import io.grpc.internal.AbstractClientStream;
import io.grpc.internal.GrpcUtil;
import io.grpc.netty.GrpcSslContexts;
import io.grpc.netty.NettyChannelBuilder;
import io.netty.channel.ChannelOption;
import io.netty.channel.WriteBufferWaterMark;
import io.netty.handler.ssl.SslContext;
import io.netty.handler.ssl.SslContextBuilder;
import io.netty.handler.ssl.SslProvider;
import java.io.File;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.concurrent.TimeUnit;
import java.util.logging.Level;
import java.util.logging.Logger;
import javax.net.ssl.SSLException;

/**
 * Factory of gRPC channels: sockets, TLS, flow control, keepalive. {@link ChannelPool} keeps them.
 */
final class Channels {
  /**
   * HTTP/2 window of a connection and of each stream. It holds a few batches and is not a memory
   * limit.
   */
  private static final int FLOW_CONTROL_BYTES = 4 << 20;

  /**
   * Bytes that a connection hands to its socket at once. With the default of 64 KiB, one batch of a
   * file would take 64 system calls and wake its reader 64 times.
   */
  private static final WriteBufferWaterMark WRITE_BYTES =
      new WriteBufferWaterMark(FLOW_CONTROL_BYTES / 2, FLOW_CONTROL_BYTES);

  private static final int UNIX_SEND_BUFFER_BYTES = 2 << 20;

  private static final int KEEPALIVE_SECONDS = 60;
  private static final int KEEPALIVE_TIMEOUT_SECONDS = 20;
  private static final int IDLE_MINUTES = 5;

  private static final DecompressorRegistry UNCOMPRESSED =
      DecompressorRegistry.emptyInstance().with(Codec.Identity.NONE, false);

  /**
   * gRPC's logger, which would report each reply that arrives after a cancel. The static block
   * below turns these reports off. Without this strong reference, the JVM could collect the logger
   * and its level.
   */
  private static final Logger STREAM_LOG = Logger.getLogger(AbstractClientStream.class.getName());

  static {
    STREAM_LOG.setLevel(Level.WARNING);
  }

  private Channels() {}

  /**
   * Divisor of the connect timeout if the name has several pods, so that the task has time to try
   * another pod.
   */
  private static final int TRIES_WHILE_CONNECTING = 3;

  /**
   * Return a channel to the options' endpoint. The channel connects with its first call.
   *
   * @param pod the pod to use among the pods behind the endpoint's name; null leaves the choice to
   *     gRPC
   * @throws IllegalArgumentException if a TLS file cannot be used, or if there is a certificate
   *     without its key or a key without its certificate
   */
  static ManagedChannel open(ClientOptions options, InetAddress pod) {
    if (options.tls().certificate().isEmpty() != options.tls().key().isEmpty()) {
      throw new IllegalArgumentException(
          certificateSettings(options.peer(), " and ") + " go together");
    }
    Endpoint endpoint = options.endpoint();
    boolean unix = endpoint.transport() == Endpoint.Transport.UNIX;
    NettyChannelBuilder builder = unix ? unix(endpoint) : network(endpoint, pod);
    if (endpoint.transport() == Endpoint.Transport.TLS) {
      builder.sslContext(sslContext(options));
    } else {
      builder.usePlaintext();
    }
    if (!unix) {
      long milliseconds =
          options.connectTimeout().toMillis() / (pod == null ? 1 : TRIES_WHILE_CONNECTING);
      builder.withOption(
          ChannelOption.CONNECT_TIMEOUT_MILLIS,
          (int) Math.max(1, Math.min(Integer.MAX_VALUE, milliseconds)));
    }
    return builder
        .keepAliveTime(KEEPALIVE_SECONDS, TimeUnit.SECONDS)
        .keepAliveTimeout(KEEPALIVE_TIMEOUT_SECONDS, TimeUnit.SECONDS)
        .eventLoopGroup(EventLoops.GROUP)
        .directExecutor()
        .withOption(ChannelOption.WRITE_BUFFER_WATER_MARK, WRITE_BYTES)
        .flowControlWindow(FLOW_CONTROL_BYTES)
        .maxInboundMessageSize(options.maxMessageBytes())
        .idleTimeout(IDLE_MINUTES, TimeUnit.MINUTES)
        .decompressorRegistry(UNCOMPRESSED)
        .disableServiceConfigLookUp()
        // The exchange does its own retries. If gRPC retried too, it would keep a copy of every
        // message.
        .disableRetry()
        .build();
  }

  private static NettyChannelBuilder unix(Endpoint endpoint) {
    return NettyChannelBuilder.forAddress(EventLoops.unixAddress(endpoint.path()))
        .channelType(EventLoops.unixChannel())
        // gRPC sets this option on every socket. Netty logs a warning for each Unix socket, because
        // Unix sockets do not support it.
        .withOption(ChannelOption.SO_KEEPALIVE, null)
        // TCP's buffers grow by themselves. A Unix socket's buffer does not, and by default it
        // holds only a fraction of a batch.
        .withOption(ChannelOption.SO_SNDBUF, UNIX_SEND_BUFFER_BYTES)
        .overrideAuthority("localhost");
  }

  private static NettyChannelBuilder network(Endpoint endpoint, InetAddress pod) {
    return to(endpoint, pod)
        .channelType(EventLoops.tcpChannel())
        // Pools and writers are inside the cluster. The JVM's proxy is for addresses outside the
        // cluster.
        .proxyDetector(address -> null);
  }

  private static NettyChannelBuilder to(Endpoint endpoint, InetAddress pod) {
    if (pod == null) {
      return NettyChannelBuilder.forAddress(endpoint.host(), endpoint.port());
    }
    // The server's certificate names the Kubernetes Service, not its pods.
    return NettyChannelBuilder.forAddress(new InetSocketAddress(pod, endpoint.port()))
        .overrideAuthority(GrpcUtil.authorityFromHostAndPort(endpoint.host(), endpoint.port()));
  }

  private static SslContext sslContext(ClientOptions options) {
    SslContextBuilder builder = SslContextBuilder.forClient();
    TlsFiles files = options.tls();
    Peer peer = options.peer();
    if (!files.ca().isEmpty()) {
      use(peer.setting(Peer.Setting.TLS_CA_FILE), () -> builder.trustManager(readable(files.ca())));
    }
    if (!files.certificate().isEmpty()) {
      use(
          certificateSettings(peer, " or "),
          () -> builder.keyManager(readable(files.certificate()), readable(files.key())));
    }
    try {
      return GrpcSslContexts.configure(builder, SslProvider.JDK).build();
    } catch (SSLException e) {
      throw new IllegalArgumentException(
          "cannot set up TLS for " + options.endpoint() + ": " + e.getMessage(), e);
    }
  }

  private static String certificateSettings(Peer peer, String conjunction) {
    return peer.setting(Peer.Setting.TLS_CERTIFICATE_FILE)
        + conjunction
        + peer.setting(Peer.Setting.TLS_KEY_FILE);
  }

  private static void use(String setting, Runnable load) {
    try {
      load.run();
    } catch (IllegalArgumentException e) {
      throw new IllegalArgumentException(setting + " cannot be used: " + e.getMessage(), e);
    }
  }

  /**
   * Return the file, or raise an error if it cannot be opened. Without this check, Netty would only
   * report that the file contains nothing valid.
   */
  private static File readable(String path) {
    File file = new File(path);
    if (!file.exists()) {
      throw new IllegalArgumentException("no such file: " + path);
    }
    if (!file.canRead()) {
      throw new IllegalArgumentException("this process may not read " + path);
    }
    return file;
  }
}
