// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import com.google.protobuf.ByteString;
import io.grpc.Status;
import java.net.InetSocketAddress;
import java.util.Optional;

/**
 * Diagnosis of an endpoint where calls fail in ways that the expected peer would not cause. Another
 * service may listen there, the port may be another port of the peer, or only one side may use TLS.
 */
public final class Listener {
  private Listener() {}

  /**
   * Describe what listens at the endpoint, if that is certainly not the expected peer; otherwise
   * empty. Takes a few seconds at most.
   *
   * @throws IllegalArgumentException if the options' TLS files or token file cannot be used
   * @throws InterruptedException if the thread was interrupted
   */
  public static Optional<String> wrongPeer(ClientOptions options) throws InterruptedException {
    Endpoint endpoint = options.endpoint();
    if (endpoint.transport() == Endpoint.Transport.UNIX) {
      return mistakenService(options);
    }
    boolean expectsTls = endpoint.transport() == Endpoint.Transport.TLS;
    return switch (speech(options)) {
      case HTTP1 ->
          Optional.of(
              "%s is not a %s: it speaks HTTP/1, like a metrics port"
                  .formatted(endpoint.address(), options.peer().noun()));
      case TLS, MUTUAL_TLS ->
          expectsTls ? mistakenService(options) : Optional.of(tlsOnOneSide(options));
      case HTTP2 -> expectsTls ? Optional.of(tlsOnOneSide(options)) : mistakenService(options);
      case UNKNOWN -> Optional.empty();
    };
  }

  /**
   * Explain that TLS calls break off because the peer asks for a client certificate; empty if the
   * peer does not ask.
   */
  static Optional<String> wantsCertificate(ClientOptions options) {
    Endpoint endpoint = options.endpoint();
    if (endpoint.transport() != Endpoint.Transport.TLS
        || speech(options) != PortProtocol.MUTUAL_TLS) {
      return Optional.empty();
    }
    Peer peer = options.peer();
    String settings =
        "%s and %s"
            .formatted(
                peer.setting(Peer.Setting.TLS_CERTIFICATE_FILE),
                peer.setting(Peer.Setting.TLS_KEY_FILE));
    String file = options.tls().certificate();
    String reason =
        file.isEmpty()
            ? "this client sent none (%s)".formatted(settings)
            : "does not accept the one in %s (%s)".formatted(file, settings);
    return Optional.of(
        "the %s at %s asks for a client certificate, and %s"
            .formatted(peer.noun(), endpoint, reason));
  }

  private static PortProtocol speech(ClientOptions options) {
    Endpoint endpoint = options.endpoint();
    InetSocketAddress address = new InetSocketAddress(endpoint.host(), endpoint.port());
    return PortProtocol.of(address, options.connectTimeout());
  }

  private static String tlsOnOneSide(ClientOptions options) {
    Endpoint endpoint = options.endpoint();
    boolean here = endpoint.transport() == Endpoint.Transport.TLS;
    return "only one side uses TLS: %s %s TLS, but %s = %s; use %s"
        .formatted(
            endpoint.address(),
            here ? "does not use" : "uses",
            options.peer().setting(Peer.Setting.ENDPOINT),
            endpoint,
            endpoint.toString().replaceFirst("^grpc(\\+tls)?", here ? "grpc" : "grpc+tls"));
  }

  /** Describe the gRPC service that answers at the endpoint, if it is not the expected service. */
  private static Optional<String> mistakenService(ClientOptions options)
      throws InterruptedException {
    Peer expected = options.peer();
    Peer other = expected == Peer.POOL ? Peer.WRITER : Peer.POOL;
    String address = options.endpoint().address();
    ChannelPool.Connection connection = ChannelPool.acquireForQuestion(options);
    try {
      FlightAction status = new FlightAction(other.statusAction(), ByteString.EMPTY);
      if (ActionCall.run(connection, options, status).status().isOk()) {
        return Optional.of(
            "%s is a %s, not a %s".formatted(address, other.noun(), expected.noun()));
      }
      FlightAction own = new FlightAction(expected.statusAction(), ByteString.EMPTY);
      boolean knowsFlight =
          ActionCall.run(connection, options, own).status().getCode() != Status.Code.UNIMPLEMENTED;
      if (!knowsFlight && ActionCall.health(connection, options).isOk()) {
        return Optional.of(
            "%s is not a %s: it answers only health checks, like an admin port"
                .formatted(address, expected.noun()));
      }
      return Optional.empty();
    } finally {
      connection.release();
    }
  }
}
