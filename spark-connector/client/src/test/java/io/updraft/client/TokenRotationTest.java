// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.Metadata;
import io.grpc.ServerCall;
import io.grpc.Status;
import io.updraft.proto.v1.ErrorKind;
import io.updraft.proto.v1.Receipt;
import io.updraft.proto.v1.WriteCommand;
import io.updraft.proto.v1.WriteReplyMetadata;
import io.updraft.proto.v1.WriteRequestMetadata;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Tests of a token file that changes while calls are made. */
@Timeout(60)
final class TokenRotationTest {
  private static final Metadata.Key<String> AUTHORIZATION =
      Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);
  private static final Status UNKNOWN = Status.UNAUTHENTICATED.withDescription("not known here");
  private static final byte[] NOTHING = {};

  @TempDir Path directory;
  private Path file;

  @BeforeEach
  void createTokenFile() {
    file = directory.resolve("token");
    replace("old");
  }

  private void replace(String token) {
    try {
      Files.writeString(file, token + "\n");
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private ClientOptions options(Endpoint endpoint) {
    return ClientOptions.of(Peer.POOL, endpoint)
        .changed(
            o -> {
              o.token = "not used";
              o.tokenFile = file.toString();
            });
  }

  private ExchangeFixture task(TestPool pool, Replay replay) {
    return new ExchangeFixture(options(pool.endpoint()), replay);
  }

  /** Refuse a call because of its token. */
  private static void refuses(PoolCall call) throws InterruptedException {
    call.receive();
    call.close(UNKNOWN, new Metadata());
  }

  /** Return a behavior that replaces the client's token file and then refuses the call. */
  private TestPool.Behaviour refusesAfter(String token) {
    return call -> {
      replace(token);
      refuses(call);
    };
  }

  private static List<String> tokens(TestPool pool) {
    return pool.calls().stream().map(call -> call.headers().get(AUTHORIZATION)).toList();
  }

  @ParameterizedTest
  @EnumSource(Replay.class)
  void an_exchange_whose_token_was_replaced_meanwhile_is_opened_again(Replay replay)
      throws Exception {
    try (TestPool pool = TestPool.of(refusesAfter("new"), Behaviours::echo);
        ExchangeFixture task = task(pool, replay)) {
      assertEquals(List.of(1L, 2L), task.run(2, 1));
      assertEquals(List.of("Bearer old", "Bearer new"), tokens(pool));
      assertEquals(0, task.exchange().replays());
    }
  }

  @Test
  void an_exchange_whose_token_stays_fails_at_once_and_says_what_to_do() {
    try (TestPool pool = TestPool.of(TokenRotationTest::refuses);
        ExchangeFixture task = task(pool, Replay.REPLAY)) {
      ExchangeException failure = assertThrows(ExchangeException.class, () -> task.run(1, 1));
      assertEquals(ErrorKind.ERROR_KIND_UNAUTHENTICATED, failure.kind());
      String advice =
          "not known here; put a token that the pool accepts into %s (spark.updraft.udf.tokenFile)";
      assertTrue(failure.getMessage().endsWith(advice.formatted(file)), failure.getMessage());
      assertEquals(1, pool.calls().size());
    }
  }

  @Test
  void a_second_token_that_is_refused_too_is_the_last() {
    try (TestPool pool = TestPool.of(refusesAfter("second"), refusesAfter("third"));
        ExchangeFixture task = task(pool, Replay.REPLAY)) {
      assertThrows(ExchangeException.class, () -> task.run(1, 1));
      assertEquals(List.of("Bearer old", "Bearer second"), tokens(pool));
    }
  }

  @Test
  void a_call_that_takes_the_place_of_a_lost_one_has_the_token_of_its_own_time() throws Exception {
    TestPool.Behaviour dies =
        Behaviours.afterAnswers(
            1,
            call -> {
              replace("new");
              Behaviours.workerDies(call);
            });
    // The new token, too, is replaced before the pool accepts it.
    try (TestPool pool = TestPool.of(dies, refusesAfter("newer"), Behaviours::echo);
        ExchangeFixture task = task(pool, Replay.REPLAY)) {
      assertEquals(List.of(1L, 2L, 3L), task.run(3, 1));
      assertEquals(List.of("Bearer old", "Bearer new", "Bearer newer"), tokens(pool));
    }
  }

  @Test
  void a_token_that_was_accepted_in_between_may_be_replaced_again() throws Exception {
    try (TestPool pool =
            TestPool.of(
                refusesAfter("second"),
                Behaviours.full("1"),
                refusesAfter("third"),
                Behaviours::echo);
        ExchangeFixture task = task(pool, Replay.REPLAY)) {
      assertEquals(List.of(1L), task.run(1, 1));
      assertEquals(
          List.of("Bearer old", "Bearer second", "Bearer second", "Bearer third"), tokens(pool));
    }
  }

  @Test
  void a_token_that_is_taken_away_while_the_exchange_waits_may_be_replaced_each_time()
      throws Exception {
    try (TestPool pool =
            TestPool.of(takesBackAfter("second"), takesBackAfter("third"), Behaviours::echo);
        ExchangeFixture task = task(pool, Replay.REPLAY)) {
      assertEquals(List.of(1L), task.run(1, 1));
      assertEquals(List.of("Bearer old", "Bearer second", "Bearer third"), tokens(pool));
    }
  }

  /**
   * Return the behavior of a pool that revokes the exchange's token while the exchange is queued.
   */
  private TestPool.Behaviour takesBackAfter(String token) {
    return call -> {
      call.receive();
      replace(token);
      call.fail(ErrorKind.ERROR_KIND_UNAUTHENTICATED, "not known any more", 0);
    };
  }

  @Test
  void a_refusal_after_work_was_done_is_final() {
    try (TestPool pool =
            TestPool.of(
                Behaviours.atWork(
                    call -> {
                      replace("new");
                      call.close(UNKNOWN, new Metadata());
                    }),
                Behaviours::echo);
        ExchangeFixture task = task(pool, Replay.REPLAY)) {
      ExchangeException failure = assertThrows(ExchangeException.class, () -> task.run(1, 1));
      assertEquals(ErrorKind.ERROR_KIND_UNAUTHENTICATED, failure.kind());
      assertEquals(1, pool.calls().size());
    }
  }

  @Test
  void an_exchange_that_is_open_goes_on_with_the_token_it_was_opened_with() throws Exception {
    CountDownLatch replaced = new CountDownLatch(1);
    TestPool.Behaviour waits =
        call -> {
          FlightData opening = call.receive();
          replaced.await();
          Behaviours.echo(call, opening);
        };
    try (TestPool pool = TestPool.of(waits);
        ExchangeFixture task = task(pool, Replay.NEVER)) {
      replace("new");
      replaced.countDown();
      assertEquals(List.of(1L), task.run(1, 1));
      assertEquals(List.of("Bearer old"), tokens(pool));
    }
  }

  @Test
  void a_file_that_is_being_replaced_does_not_take_the_token_away() throws Exception {
    TestPool.Behaviour truncates =
        call -> {
          replace("");
          Behaviours.full("1").run(call);
        };
    TestPool.Behaviour removes =
        call -> {
          Files.delete(file);
          Behaviours.full("1").run(call);
        };
    try (TestPool pool = TestPool.of(truncates, removes, Behaviours::echo);
        ExchangeFixture task = task(pool, Replay.REPLAY)) {
      assertEquals(List.of(1L), task.run(1, 1));
      assertEquals(List.of("Bearer old", "Bearer old", "Bearer old"), tokens(pool));
    }
  }

  @Test
  void a_file_without_a_token_is_named_by_its_setting() throws Exception {
    try (TestPool pool = TestPool.of(Behaviours::echo)) {
      replace("");
      assertUnusable(pool, "spark.updraft.udf.tokenFile = \"%s\": the file is empty");
      Files.delete(file);
      assertUnusable(
          pool, "spark.updraft.udf.tokenFile = \"%s\": java.nio.file.NoSuchFileException: ");
      assertEquals(List.of(), pool.calls());
    }
  }

  private void assertUnusable(TestPool pool, String message) {
    IllegalArgumentException error =
        assertThrows(IllegalArgumentException.class, () -> task(pool, Replay.REPLAY).close());
    assertTrue(error.getMessage().startsWith(message.formatted(file)), error.getMessage());
  }

  @Test
  void a_token_that_no_file_holds_is_not_tried_twice() {
    try (TestPool pool = TestPool.of(TokenRotationTest::refuses)) {
      ClientOptions options = ClientOptions.of(Peer.POOL, pool.endpoint());
      assertRefused(
          options, "set spark.updraft.udf.tokenFile to a file with a token that the pool accepts");
      assertRefused(
          options.changed(o -> o.token = "old"),
          "correct spark.updraft.udf.token, or set spark.updraft.udf.tokenFile to a file with a token "
              + "that the pool accepts");
      assertEquals(2, pool.calls().size());
    }
  }

  private static void assertRefused(ClientOptions options, String advice) {
    try (ExchangeFixture task = new ExchangeFixture(options, Replay.REPLAY)) {
      ExchangeException failure = assertThrows(ExchangeException.class, () -> task.run(1, 1));
      assertTrue(failure.getMessage().endsWith("not known here; " + advice), failure.getMessage());
    }
  }

  /** Accept a file without rows, as a writer does. */
  private static void writes(PoolCall call) throws Exception {
    call.receive();
    while (!WriteRequestMetadata.parseFrom(call.receiveEarly().appMetadata()).hasFinish()) {
      // Skip keepalives.
    }
    reply(call, WriteReplyMetadata.newBuilder().setReceipt(Receipt.getDefaultInstance()));
    call.close(Status.OK, new Metadata());
  }

  private static void reply(PoolCall call, WriteReplyMetadata.Builder metadata) {
    call.sendBytes(
        new FlightData(NOTHING, NOTHING, metadata.build().toByteArray(), NOTHING).encode());
  }

  private FileExchange file(TestPool writer, BufferAllocator allocator) {
    return FileExchange.open(
        options(writer.endpoint()).changed(o -> o.peer = Peer.WRITER),
        WriteCommand.getDefaultInstance(),
        Batches.SCHEMA,
        allocator,
        part -> {});
  }

  @Test
  void a_file_whose_token_was_replaced_meanwhile_is_opened_again() throws Exception {
    try (TestPool writer = TestPool.of(refusesAfter("new"), TokenRotationTest::writes);
        BufferAllocator allocator = new RootAllocator();
        FileExchange opened = file(writer, allocator)) {
      assertEquals(0, opened.finish().getRows());
      assertEquals(List.of("Bearer old", "Bearer new"), tokens(writer));
    }
  }

  @Test
  void a_file_whose_token_stays_fails_at_once() {
    try (TestPool writer = TestPool.of(TokenRotationTest::refuses);
        BufferAllocator allocator = new RootAllocator();
        FileExchange opened = file(writer, allocator)) {
      ExchangeException failure = assertThrows(ExchangeException.class, opened::finish);
      assertTrue(failure.getMessage().contains("(spark.updraft.write.tokenFile)"));
      assertEquals(1, writer.calls().size());
    }
  }

  /** Server whose actions accept only one token and run {@code refused} for any other. */
  private final class Actions implements AutoCloseable {
    private final List<String> presented = new CopyOnWriteArrayList<>();
    private final TestServer server;

    Actions(String accepted, Runnable refused) {
      server =
          TestServer.start(
              TestServer.onLoopback(0),
              FlightMethod.DO_ACTION,
              (call, headers) -> {
                String token = headers.get(AUTHORIZATION);
                presented.add(token);
                boolean known = token.equals("Bearer " + accepted);
                if (!known) {
                  refused.run();
                }
                return answering(call, known ? Status.OK : UNKNOWN);
              });
    }

    private ServerCall.Listener<byte[]> answering(ServerCall<byte[], byte[]> call, Status status) {
      call.request(2);
      return new ServerCall.Listener<>() {
        @Override
        public void onMessage(byte[] action) {
          call.sendHeaders(new Metadata());
          if (status.isOk()) {
            call.sendMessage(new byte[] {1 << 3 | 2, 0});
          }
          call.close(status, new Metadata());
        }
      };
    }

    ClientOptions options() {
      return TokenRotationTest.this.options(server.endpoint());
    }

    @Override
    public void close() {
      server.close();
    }
  }

  @Test
  void an_action_whose_token_was_replaced_meanwhile_is_asked_again() throws Exception {
    try (Actions pool = new Actions("new", () -> replace("new"))) {
      assertTrue(PoolCheck.ask(pool.options()).isAccepted());
      // The check asks for the pool's status, and then for the caller's identity.
      assertEquals(List.of("Bearer old", "Bearer new", "Bearer new"), pool.presented);
      replace("old");
      assertTrue(WriteCheck.ask(pool.options(), WriteCommand.getDefaultInstance()).isEmpty());
      assertEquals(5, pool.presented.size());
    }
  }

  @Test
  void an_action_whose_token_stays_is_asked_once() throws Exception {
    try (Actions pool = new Actions("new", () -> {})) {
      assertFalse(PoolCheck.ask(pool.options()).isAccepted());
      assertEquals(List.of("Bearer old"), pool.presented);
    }
  }

  @Test
  void an_action_whose_second_token_is_refused_too_is_not_asked_a_third_time() throws Exception {
    List<String> tokens = new CopyOnWriteArrayList<>(List.of("second", "third", "new"));
    try (Actions pool = new Actions("new", () -> replace(tokens.remove(0)))) {
      assertFalse(PoolCheck.ask(pool.options()).isAccepted());
      assertEquals(List.of("Bearer old", "Bearer second"), pool.presented);
    }
  }
}
