// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.grpc.Metadata;
import io.grpc.ServerCall;
import io.grpc.Status;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Tests with fake services; tests/e2e/test_wrong_endpoints.py has the real ones. */
@Timeout(120)
final class ListenerTest {
  private static Optional<String> wrongPeer(int port) throws InterruptedException {
    Endpoint endpoint = Endpoint.parse("grpc://127.0.0.1:" + port);
    return Listener.wrongPeer(
        ClientOptions.of(Peer.POOL, endpoint)
            .changed(o -> o.connectTimeout = Duration.ofSeconds(20)));
  }

  /** Return the description of a port that sends these bytes to every client and hangs up. */
  private static Optional<String> answering(String answer) throws Exception {
    ServerSocket server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    Thread thread = new Thread(() -> answerAll(server, answer));
    thread.start();
    try {
      return wrongPeer(server.getLocalPort())
          .map(told -> told.replace("127.0.0.1:" + server.getLocalPort(), "it"));
    } finally {
      server.close();
      thread.join();
    }
  }

  private static void answerAll(ServerSocket server, String answer) {
    while (!server.isClosed()) {
      try (Socket socket = server.accept()) {
        InputStream input = socket.getInputStream();
        socket.getOutputStream().write(answer.getBytes(StandardCharsets.US_ASCII));
        socket.shutdownOutput();
        input.readAllBytes();
      } catch (IOException e) {
        if (!server.isClosed()) {
          throw new UncheckedIOException(e);
        }
      }
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"HTTP/1.1 400 Bad Request\r\n\r\n", "<!DOCTYPE HTML>"})
  void a_web_server_is_told(String answer) throws Exception {
    assertEquals(
        Optional.of("it is not a pool: it speaks HTTP/1, like a metrics port"), answering(answer));
  }

  @ParameterizedTest
  @ValueSource(strings = {"", "220 mail.example ESMTP\r\n"})
  void what_is_not_known_is_not_guessed(String answer) throws Exception {
    assertEquals(Optional.empty(), answering(answer));
  }

  @Test
  void where_nothing_listens_nothing_is_told() throws Exception {
    int port;
    try (ServerSocket closed = new ServerSocket(0, 50, InetAddress.getLoopbackAddress())) {
      port = closed.getLocalPort();
    }
    assertEquals(Optional.empty(), wrongPeer(port));
  }

  @Test
  void another_service_of_grpc_is_not_taken_for_an_admin_port() throws Exception {
    try (TestServer server =
        TestServer.start(
            TestServer.onLoopback(0), FlightMethod.DO_ACTION, (call, headers) -> refuse(call))) {
      assertEquals(Optional.empty(), wrongPeer(server.port()));
    }
  }

  private static ServerCall.Listener<byte[]> refuse(ServerCall<byte[], byte[]> call) {
    call.close(Status.UNIMPLEMENTED, new Metadata());
    return new ServerCall.Listener<>() {};
  }
}
