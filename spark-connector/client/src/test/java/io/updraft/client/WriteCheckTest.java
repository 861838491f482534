// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.CodedInputStream;
import io.grpc.Metadata;
import io.grpc.ServerCall;
import io.grpc.Status;
import io.updraft.proto.v1.ErrorKind;
import io.updraft.proto.v1.WriteCommand;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(120)
final class WriteCheckTest {
  private static final WriteCommand COMMAND =
      WriteCommand.newBuilder()
          .setProtocolVersion(Exchange.PROTOCOL_VERSION)
          .setPath("file:/data/part-00000")
          .build();
  private static final byte[] EMPTY_RESULT = new byte[0];

  /** Received call: its headers and the bytes of its Action. */
  private record Asked(Metadata headers, byte[] action) {}

  /** Flight server whose actions all end with one status; they never end if it is null. */
  private static final class Actions implements AutoCloseable {
    private final BlockingQueue<Asked> asked = new LinkedBlockingQueue<>();
    private final CountDownLatch cancelled = new CountDownLatch(1);
    private final TestServer server;

    Actions(Status status) {
      server =
          TestServer.start(
              TestServer.onLoopback(0),
              FlightMethod.DO_ACTION,
              (call, headers) -> serve(call, headers, status));
    }

    private ServerCall.Listener<byte[]> serve(
        ServerCall<byte[], byte[]> call, Metadata headers, Status status) {
      call.request(2);
      return new ServerCall.Listener<>() {
        @Override
        public void onMessage(byte[] action) {
          asked.add(new Asked(headers, action));
          if (status != null) {
            call.sendHeaders(new Metadata());
            if (status.isOk()) {
              call.sendMessage(EMPTY_RESULT);
            }
            call.close(status, new Metadata());
          }
        }

        @Override
        public void onCancel() {
          cancelled.countDown();
        }
      };
    }

    ClientOptions options() {
      return ClientOptions.of(Peer.WRITER, server.endpoint());
    }

    @Override
    public void close() {
      server.close();
    }
  }

  private static WriteCheck.Refusal refusal(Status status) throws Exception {
    try (Actions writer = new Actions(status)) {
      return WriteCheck.ask(writer.options(), COMMAND).orElseThrow();
    }
  }

  @Test
  void a_writer_is_asked_by_flights_action_with_the_command_and_the_token() throws Exception {
    try (Actions writer = new Actions(Status.OK)) {
      assertEquals(
          Optional.empty(),
          WriteCheck.ask(writer.options().changed(o -> o.token = "secret"), COMMAND));
      Asked asked = writer.asked.take();
      assertEquals(
          "Bearer secret",
          asked.headers.get(Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER)));
      CodedInputStream action = CodedInputStream.newInstance(asked.action);
      assertEquals(1 << 3 | 2, action.readTag());
      assertEquals("updraft.check_write", action.readString());
      assertEquals(2 << 3 | 2, action.readTag());
      assertEquals(COMMAND, WriteCommand.parseFrom(action.readByteArray()));
      assertTrue(action.isAtEnd());
    }
  }

  @Test
  void what_has_no_such_action_is_not_a_writer() throws Exception {
    String answer = "no action 'updraft.check_write': this pool has updraft.pool_status";
    WriteCheck.Refusal pool = refusal(Status.INVALID_ARGUMENT.withDescription(answer));
    assertTrue(pool.message().contains("is not a writer"), pool.message());
    assertTrue(pool.message().contains(answer), pool.message());
    assertFalse(pool.temporary());
    WriteCheck.Refusal stranger = refusal(Status.UNIMPLEMENTED.withDescription("DoAction"));
    assertTrue(stranger.message().contains("is not a writer"), stranger.message());
    assertFalse(stranger.temporary());
  }

  @Test
  void what_will_not_change_is_told_from_what_may() throws Exception {
    assertFalse(refusal(Status.FAILED_PRECONDITION.withDescription("version 9")).temporary());
    assertFalse(refusal(Status.PERMISSION_DENIED.withDescription("outside")).temporary());
    assertFalse(refusal(Status.INVALID_ARGUMENT.withDescription("no command")).temporary());
    assertTrue(refusal(Status.UNAVAILABLE.withDescription("draining")).temporary());
    assertTrue(refusal(Status.RESOURCE_EXHAUSTED.withDescription("full")).temporary());
  }

  @Test
  void a_wrong_token_is_named_with_its_setting() throws Exception {
    WriteCheck.Refusal refusal = refusal(Status.UNAUTHENTICATED.withDescription("not known"));
    assertEquals(ErrorKind.ERROR_KIND_UNAUTHENTICATED, refusal.kind());
    assertTrue(
        refusal.message().contains(Peer.WRITER.setting(Peer.Setting.TOKEN_FILE)),
        refusal.message());
    assertFalse(refusal.temporary());
  }

  @Test
  void a_connection_that_is_refused_may_be_accepted_later() throws Exception {
    ClientOptions options;
    try (Actions writer = new Actions(Status.OK)) {
      options = writer.options();
    }
    WriteCheck.Refusal refusal = WriteCheck.ask(options, COMMAND).orElseThrow();
    assertEquals("UNAVAILABLE", refusal.code());
    String expected = "cannot reach a writer at " + options.endpoint() + ": ";
    assertTrue(refusal.message().startsWith(expected), refusal.message());
    assertTrue(refusal.message().contains("refused"), refusal.message());
    assertTrue(refusal.temporary());
  }

  @Test
  void a_silent_listener_is_given_up_after_the_connect_timeout() throws Exception {
    try (ServerSocket silent = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      ClientOptions options =
          ClientOptions.of(Peer.POOL, Endpoint.parse("grpc://127.0.0.1:" + silent.getLocalPort()))
              .changed(o -> o.connectTimeout = Duration.ofMillis(200));
      WriteCheck.Refusal refusal = WriteCheck.ask(options, COMMAND).orElseThrow();
      assertTrue(refusal.message().contains("did not answer within 0.2 s"), refusal.message());
      assertTrue(refusal.temporary());
    }
  }

  @Test
  void an_interrupt_cancels_the_call() throws Exception {
    try (Actions writer = new Actions(null)) {
      ClientOptions options =
          writer.options().changed(o -> o.connectTimeout = Duration.ofSeconds(50));
      FutureTask<Void> asking =
          new FutureTask<>(
              () -> {
                assertThrows(InterruptedException.class, () -> WriteCheck.ask(options, COMMAND));
                return null;
              });
      Thread thread = new Thread(asking);
      thread.start();
      writer.asked.take();
      thread.interrupt();
      asking.get(60, TimeUnit.SECONDS);
      assertTrue(writer.cancelled.await(60, TimeUnit.SECONDS));
    }
  }
}
