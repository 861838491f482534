// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.CodedOutputStream;
import io.grpc.Metadata;
import io.grpc.ServerCall;
import io.grpc.Status;
import io.updraft.proto.v1.PoolStatus;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.time.Duration;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

@Timeout(120)
final class PoolCheckTest {
  private static final PoolStatus STATUS =
      PoolStatus.newBuilder()
          .setProtocolVersion(Exchange.PROTOCOL_VERSION)
          .setPythonVersion("3.11.9")
          .setPysparkVersion("4.2.0")
          .setSessionFunctionsAllowed(true)
          .build();

  private static byte[] result(PoolStatus status) {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    CodedOutputStream output = CodedOutputStream.newInstance(bytes);
    try {
      output.writeBytes(1, status.toByteString());
      output.flush();
    } catch (IOException e) {
      throw new IllegalStateException(e);
    }
    return bytes.toByteArray();
  }

  /**
   * Return the answer of a pool that ends its actions with a status, after a result if it is OK.
   */
  private static PoolCheck.Answer answer(Status status, PoolStatus pool) throws Exception {
    try (TestServer server = serving(0, status, pool)) {
      return PoolCheck.ask(options(server));
    }
  }

  private static TestServer accepting(int port) {
    return serving(port, Status.OK, STATUS);
  }

  private static TestServer serving(int port, Status status, PoolStatus pool) {
    return TestServer.start(
        TestServer.onLoopback(port),
        FlightMethod.DO_ACTION,
        (call, headers) -> serve(call, status, pool));
  }

  private static ClientOptions options(TestServer server) {
    return ClientOptions.of(Peer.POOL, server.endpoint());
  }

  private static ServerCall.Listener<byte[]> serve(
      ServerCall<byte[], byte[]> call, Status status, PoolStatus pool) {
    call.request(2);
    return new ServerCall.Listener<>() {
      @Override
      public void onMessage(byte[] action) {
        call.sendHeaders(new Metadata());
        if (status.isOk()) {
          call.sendMessage(result(pool));
        }
        call.close(status, new Metadata());
      }
    };
  }

  private static PoolCheck.Refusal mismatch(PoolStatus pool) throws Exception {
    return answer(Status.OK, pool).refusalOf("3.11", "4.2.1").orElseThrow();
  }

  @Test
  void a_pool_of_the_same_versions_refuses_nothing() throws Exception {
    PoolCheck.Answer answer = answer(Status.OK, STATUS);
    assertTrue(answer.isAccepted());
    assertEquals(Optional.empty(), answer.refusalOf("3.11", "4.2.1"));
  }

  @Test
  void a_pool_that_has_come_back_is_heard_at_once() throws Exception {
    int port;
    try (TestServer server = accepting(0)) {
      port = server.port();
      assertTrue(PoolCheck.ask(options(server)).isAccepted());
    }
    ClientOptions options = ClientOptions.of(Peer.POOL, Endpoint.parse("grpc://127.0.0.1:" + port));
    for (int attempt = 0; attempt < 3; attempt++) {
      assertFalse(PoolCheck.ask(options).isAccepted());
    }
    try (TestServer server = accepting(port)) {
      assertTrue(PoolCheck.ask(options(server)).isAccepted());
    }
  }

  @Test
  void a_wrong_token_is_named_with_its_setting() throws Exception {
    Status unknown = Status.UNAUTHENTICATED.withDescription("not known");
    PoolCheck.Answer answer = answer(unknown, STATUS);
    assertFalse(answer.isAccepted());
    PoolCheck.Refusal refusal = answer.refusalOf("3.11", "4.2.1").orElseThrow();
    assertEquals(PoolCheck.Cause.TOKEN, refusal.cause());
    assertTrue(
        refusal.message().contains(Peer.POOL.setting(Peer.Setting.TOKEN_FILE)), refusal.message());
  }

  @Test
  void a_caller_that_may_not_ask_is_told_so() throws Exception {
    Status denied = Status.PERMISSION_DENIED.withDescription("the token grants nothing here");
    PoolCheck.Refusal refusal = answer(denied, STATUS).refusal().orElseThrow();
    assertEquals(PoolCheck.Cause.PERMISSION, refusal.cause());
    assertTrue(refusal.message().contains("the token grants nothing here"), refusal.message());
  }

  @Test
  void a_pool_without_functions_of_sessions_refuses_them_whatever_its_version() throws Exception {
    PoolStatus closed =
        STATUS.toBuilder().setSessionFunctionsAllowed(false).setPythonVersion("3.12").build();
    PoolStatus withoutPyspark = STATUS.toBuilder().setPysparkVersion("").build();
    for (PoolStatus pool : new PoolStatus[] {closed, withoutPyspark}) {
      assertEquals(PoolCheck.Cause.SESSION_FUNCTIONS, mismatch(pool).cause());
    }
  }

  @Test
  void another_version_is_named_with_both() throws Exception {
    PoolCheck.Refusal python = mismatch(STATUS.toBuilder().setPythonVersion("3.12.1").build());
    assertEquals(PoolCheck.Cause.VERSION, python.cause());
    assertTrue(python.message().contains("Python 3.12.1, the session 3.11"), python.message());
    PoolCheck.Refusal spark = mismatch(STATUS.toBuilder().setPysparkVersion("4.10.0").build());
    assertTrue(spark.message().contains("pyspark 4.10.0, the session 4.2.1"), spark.message());
    PoolCheck.Refusal protocol = mismatch(STATUS.toBuilder().setProtocolVersion(9).build());
    assertTrue(protocol.message().contains("version 9 of the protocol"), protocol.message());
  }

  @Test
  void a_pool_that_asks_for_signatures_refuses_sessions_without_them() throws Exception {
    assertEquals(Optional.empty(), answer(Status.OK, STATUS).refusalOfUnsigned());
    PoolStatus signed = STATUS.toBuilder().setSignaturesRequired(true).build();
    PoolCheck.Answer answer = answer(Status.OK, signed);
    assertEquals(Optional.empty(), answer.refusalOf("3.11", "4.2.1"));
    PoolCheck.Refusal refusal = answer.refusalOfUnsigned().orElseThrow();
    assertEquals(PoolCheck.Cause.SIGNATURE, refusal.cause());
  }

  /** Return the message about a port where the kernel accepts connections but no process reads. */
  private static String silenceAt(String scheme, Duration connectTimeout) throws Exception {
    try (ServerSocket silent = new ServerSocket(0, 50, InetAddress.getLoopbackAddress())) {
      Endpoint endpoint = Endpoint.parse(scheme + "://127.0.0.1:" + silent.getLocalPort());
      PoolCheck.Answer answer =
          PoolCheck.ask(
              ClientOptions.of(Peer.POOL, endpoint)
                  .changed(o -> o.connectTimeout = connectTimeout));
      assertFalse(answer.isAccepted());
      assertEquals(Optional.empty(), answer.refusalOf("3.11", "4.2.1"));
      return answer.silence().orElseThrow().replace(endpoint.toString(), "it");
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"grpc", "grpc+tls"})
  void what_accepts_connections_and_says_nothing_is_given_up(String scheme) throws Exception {
    assertEquals(
        "the service at it did not answer within 0.5 s", silenceAt(scheme, Duration.ofMillis(500)));
  }

  @Test
  void a_tls_handshake_that_times_out_before_us_is_silence_too() throws Exception {
    String told = silenceAt("grpc+tls", Duration.ofSeconds(60));
    assertTrue(told.startsWith("the service at it did not answer: handshake timed out"), told);
  }

  @Test
  void where_nothing_listens_nobody_answers() throws Exception {
    int port;
    try (ServerSocket closed = new ServerSocket(0, 50, InetAddress.getLoopbackAddress())) {
      port = closed.getLocalPort();
    }
    Endpoint endpoint = Endpoint.parse("grpc://127.0.0.1:" + port);
    assertEquals(
        Optional.of("connection refused: nothing listens at " + endpoint.address()),
        PoolCheck.ask(ClientOptions.of(Peer.POOL, endpoint)).silence());
  }

  @Test
  void what_may_change_or_is_not_known_is_left_to_the_tasks() throws Exception {
    for (Status status :
        new Status[] {Status.UNAVAILABLE, Status.RESOURCE_EXHAUSTED, Status.UNIMPLEMENTED}) {
      PoolCheck.Answer answer = answer(status, STATUS);
      assertEquals(Optional.empty(), answer.silence());
      assertFalse(answer.isAccepted());
      assertEquals(Optional.empty(), answer.refusalOf("2.7", "1.0"));
    }
    PoolStatus silent = STATUS.toBuilder().setPythonVersion("").setPysparkVersion("").build();
    assertEquals(Optional.empty(), answer(Status.OK, silent).refusalOf("3.11", "4.2.1"));
  }
}
