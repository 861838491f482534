// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.Principal;
import java.security.PrivateKey;
import java.security.cert.X509Certificate;
import java.time.Duration;
import javax.net.ssl.KeyManager;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManager;
import javax.net.ssl.X509ExtendedKeyManager;
import javax.net.ssl.X509ExtendedTrustManager;

/** Protocol spoken at a TCP port, detected from its answer to the first bytes of HTTP/2. */
enum PortProtocol {
  /** HTTP/2 without TLS, like gRPC. */
  HTTP2,
  /** HTTP/1, like a metrics port. */
  HTTP1,
  /** TLS with any protocol inside. */
  TLS,
  /** TLS that asks for a certificate of this client. */
  MUTUAL_TLS,
  /** Nothing listens, the listener is silent, or the listener speaks something else. */
  UNKNOWN;

  /** Client preface, followed by an empty SETTINGS frame. */
  private static final byte[] HTTP2_PREFACE =
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0".getBytes(StandardCharsets.US_ASCII);

  private static final int FRAME_HEADER_BYTES = 9;
  private static final int FRAME_TYPE_AT = 3;
  private static final int SETTINGS = 4;
  private static final int LONGEST_MILLISECONDS = 2000;

  /**
   * Probe a port. Wait for each answer at most as long as the timeout, and never longer than 2 s.
   */
  static PortProtocol of(InetSocketAddress address, Duration timeout) {
    int milliseconds = (int) Math.min(LONGEST_MILLISECONDS, Math.max(1, timeout.toMillis()));
    byte[] answer = answerOf(address, milliseconds);
    if (answer == null) {
      return UNKNOWN;
    }
    if (answer.length == FRAME_HEADER_BYTES && answer[FRAME_TYPE_AT] == SETTINGS) {
      return HTTP2;
    }
    String text = new String(answer, StandardCharsets.US_ASCII);
    if (text.startsWith("HTTP/") || text.startsWith("<")) {
      return HTTP1;
    }
    // A listener that expects TLS answers these bytes with an alert or closes the connection.
    return ofHandshake(address, milliseconds);
  }

  /** Return the first bytes of the answer, possibly none; null if no connection was made. */
  private static byte[] answerOf(InetSocketAddress address, int milliseconds) {
    try (Socket socket = new Socket()) {
      socket.connect(address, milliseconds);
      socket.setSoTimeout(milliseconds);
      try {
        socket.getOutputStream().write(HTTP2_PREFACE);
        return socket.getInputStream().readNBytes(FRAME_HEADER_BYTES);
      } catch (IOException e) {
        return new byte[0];
      }
    } catch (IOException e) {
      return null;
    }
  }

  private static PortProtocol ofHandshake(InetSocketAddress address, int milliseconds) {
    Witness server = new Witness();
    Asked client = new Asked();
    try (Socket socket = new Socket()) {
      socket.connect(address, milliseconds);
      socket.setSoTimeout(milliseconds);
      SSLContext context = SSLContext.getInstance("TLS");
      context.init(new KeyManager[] {client}, new TrustManager[] {server}, null);
      try (SSLSocket secure =
          (SSLSocket)
              context
                  .getSocketFactory()
                  .createSocket(socket, address.getHostString(), address.getPort(), true)) {
        SSLParameters parameters = secure.getSSLParameters();
        parameters.setApplicationProtocols(new String[] {"h2"});
        secure.setSSLParameters(parameters);
        secure.startHandshake();
      }
    } catch (IOException | GeneralSecurityException e) {
      // The handshake may fail after the server has sent its certificate, because the server
      // requires a client certificate.
      return seen(server, client);
    }
    return seen(server, client);
  }

  private static PortProtocol seen(Witness server, Asked client) {
    if (client.wasAsked) {
      return MUTUAL_TLS;
    }
    return server.hasSeen ? TLS : UNKNOWN;
  }

  /** Key manager that provides no client certificate and records whether the peer asks for one. */
  private static final class Asked extends X509ExtendedKeyManager {
    private boolean wasAsked;

    @Override
    public String chooseClientAlias(String[] types, Principal[] issuers, Socket socket) {
      wasAsked = true;
      return null;
    }

    @Override
    public String[] getClientAliases(String type, Principal[] issuers) {
      return new String[0];
    }

    @Override
    public String[] getServerAliases(String type, Principal[] issuers) {
      return new String[0];
    }

    @Override
    public String chooseServerAlias(String type, Principal[] issuers, Socket socket) {
      return null;
    }

    @Override
    public X509Certificate[] getCertificateChain(String alias) {
      return new X509Certificate[0];
    }

    @Override
    public PrivateKey getPrivateKey(String alias) {
      return null;
    }
  }

  /**
   * Trust manager that accepts any certificate and records that the server sent one. Accepting is
   * safe, because this probe sends no data.
   */
  private static final class Witness extends X509ExtendedTrustManager {
    private boolean hasSeen;

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String type, Socket socket) {
      hasSeen = true;
    }

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String type, SSLEngine engine) {
      hasSeen = true;
    }

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String type) {
      hasSeen = true;
    }

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String type, Socket socket) {
      throw new UnsupportedOperationException();
    }

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String type, SSLEngine engine) {
      throw new UnsupportedOperationException();
    }

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String type) {
      throw new UnsupportedOperationException();
    }

    @Override
    public X509Certificate[] getAcceptedIssuers() {
      return new X509Certificate[0];
    }
  }
}
