// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import java.io.Serializable;
import java.net.InetAddress;
import java.net.URI;
import java.net.URISyntaxException;
import java.net.UnknownHostException;
import java.util.Objects;

/**
 * Address of a pool or a writer: {@code grpc://host:port}, {@code grpc+tcp://host:port}, {@code
 * grpc+tls://host:port} or {@code grpc+unix:///path}. {@link #parse} creates it.
 *
 * @param transport transport of the connection
 * @param host host name or address; empty for a Unix socket
 * @param port TCP port; zero for a Unix socket
 * @param path path of the Unix socket; empty for the other transports
 */
public record Endpoint(Transport transport, String host, int port, String path)
    implements Serializable {
  private static final String EXPECTED =
      "expected grpc://host:port, grpc+tcp://host:port, grpc+tls://host:port or grpc+unix:///path";

  /** Transport of a connection. */
  public enum Transport {
    /**
     * TCP without encryption ({@code grpc}). Bodies may pass through shared memory if the service
     * is on this machine.
     */
    TCP,
    /** TCP without encryption and without shared memory ({@code grpc+tcp}). */
    TCP_ONLY,
    /** TCP with TLS. */
    TLS,
    /** Unix domain socket of this host. */
    UNIX
  }

  /**
   * Parse an endpoint.
   *
   * @throws IllegalArgumentException if the text is not an endpoint; the message contains the text
   */
  public static Endpoint parse(String text) {
    URI uri;
    try {
      uri = new URI(text.strip());
    } catch (URISyntaxException e) {
      throw malformed(text, e);
    }
    String scheme = Objects.requireNonNullElse(uri.getScheme(), "");
    return switch (scheme) {
      case "grpc" -> network(Transport.TCP, uri, text);
      case "grpc+tcp" -> network(Transport.TCP_ONLY, uri, text);
      case "grpc+tls" -> network(Transport.TLS, uri, text);
      case "grpc+unix" -> unix(uri, text);
      default -> throw malformed(text, null);
    };
  }

  private static Endpoint network(Transport transport, URI uri, String text) {
    boolean bare =
        uri.getRawUserInfo() == null
            && Objects.requireNonNullElse(uri.getRawPath(), "").length() <= 1
            && uri.getRawQuery() == null
            && uri.getRawFragment() == null;
    if (!bare || uri.getHost() == null || uri.getPort() < 1 || uri.getPort() > 65535) {
      throw malformed(text, null);
    }
    return new Endpoint(transport, uri.getHost(), uri.getPort(), "");
  }

  private static Endpoint unix(URI uri, String text) {
    String path = Objects.requireNonNullElse(uri.getPath(), "");
    if (uri.getRawAuthority() != null || !path.startsWith("/") || path.length() < 2) {
      throw malformed(text, null);
    }
    return new Endpoint(Transport.UNIX, "", 0, path);
  }

  private static IllegalArgumentException malformed(String text, Throwable cause) {
    return new IllegalArgumentException("\"" + text + "\" is not an endpoint: " + EXPECTED, cause);
  }

  /** Return whether the host name resolves to an address now; always true for a Unix socket. */
  public boolean hasAddress() {
    try {
      return transport == Transport.UNIX || InetAddress.getByName(host) != null;
    } catch (UnknownHostException e) {
      return false;
    }
  }

  /**
   * Return whether bodies may pass through memory shared by processes of this machine. They may
   * over a Unix socket, and over unencrypted TCP to a loopback address.
   */
  boolean mayShareMemory() {
    return switch (transport) {
      case UNIX -> true;
      // A host name that begins with "127." does no harm: if the client finds no segment file, it
      // sends bodies over the connection.
      case TCP -> host.equals("localhost") || host.startsWith("127.") || host.equals("[::1]");
      case TCP_ONLY, TLS -> false;
    };
  }

  /** Return host and port, or the path of the socket. */
  String address() {
    return transport == Transport.UNIX ? path : host + ":" + port;
  }

  /** Return the endpoint as written in settings. */
  @Override
  public String toString() {
    return switch (transport) {
      case TCP -> "grpc://" + host + ":" + port;
      case TCP_ONLY -> "grpc+tcp://" + host + ":" + port;
      case TLS -> "grpc+tls://" + host + ":" + port;
      case UNIX -> "grpc+unix://" + path;
    };
  }
}
