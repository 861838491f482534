// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import io.updraft.proto.v1.ArtifactsWanted;
import io.updraft.proto.v1.ErrorKind;
import io.updraft.proto.v1.ReplyMetadata;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import org.apache.arrow.memory.RootAllocator;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(120)
final class ArtifactsTest {
  /** Artifact whose digest is just its name; the client does not check digests. */
  private record Given(String name, byte[] data, long sizeBytes) implements Artifact {
    Given(String name, byte[] data) {
      this(name, data, data.length);
    }

    @Override
    public ByteString sha256() {
      return ByteString.copyFromUtf8(name);
    }

    @Override
    public InputStream open() {
      return new ByteArrayInputStream(data);
    }
  }

  private static final Given SMALL = new Given("small", "some bytes".getBytes());
  private static final Given LARGE = new Given("large", random(5 << 20 | 7));

  private static byte[] random(int length) {
    byte[] bytes = new byte[length];
    new Random(1).nextBytes(bytes);
    return bytes;
  }

  private static ExchangeFixture task(TestPool pool, Artifact... artifacts) {
    ClientOptions options = ClientOptions.of(Peer.POOL, pool.endpoint());
    return new ExchangeFixture(options, Replay.REPLAY, List.of(artifacts));
  }

  private static void ask(PoolCall call, Given... wanted) {
    ArtifactsWanted.Builder asked = ArtifactsWanted.newBuilder();
    for (Given artifact : wanted) {
      asked.addSha256(artifact.sha256());
    }
    call.send(FlightData.reply(ReplyMetadata.newBuilder().setArtifactsWanted(asked).build()));
  }

  private static void receive(PoolCall call, Given artifact) throws InterruptedException {
    ByteArrayOutputStream arrived = new ByteArrayOutputStream();
    while (arrived.size() < artifact.sizeBytes()) {
      FlightData message = call.receiveEarly();
      assertEquals(artifact.sha256(), message.request().getArtifact().getSha256());
      assertEquals(arrived.size(), message.request().getArtifact().getOffset());
      arrived.writeBytes(message.body());
    }
    assertArrayEquals(artifact.data(), arrived.toByteArray());
  }

  /** Return a behavior that asks for these artifacts one by one, then sends every batch back. */
  private static TestPool.Behaviour asks(CompletableFuture<Void> asked, Given... wanted) {
    return call -> {
      FlightData opening = call.receive();
      try {
        for (Given artifact : wanted) {
          ask(call, artifact);
          receive(call, artifact);
        }
        ask(call);
        asked.complete(null);
      } catch (AssertionError e) {
        asked.completeExceptionally(e);
        throw e;
      }
      Behaviours.echo(call, opening);
    };
  }

  @Test
  void the_pool_gets_what_it_asks_for_before_the_first_batch() throws Exception {
    CompletableFuture<Void> asked = new CompletableFuture<>();
    try (TestPool pool = TestPool.of(asks(asked, LARGE, SMALL));
        ExchangeFixture task = task(pool, SMALL, LARGE)) {
      asked.get();
      assertEquals(List.of(1L, 2L, 3L), task.run(3, 10));
      assertTrue(task.exchange().bytesSent() > LARGE.sizeBytes());
    }
  }

  @Test
  void nothing_is_sent_that_the_pool_has() throws Exception {
    try (TestPool pool = TestPool.of(asks(new CompletableFuture<>()));
        ExchangeFixture task = task(pool, SMALL, LARGE)) {
      assertEquals(List.of(1L, 2L, 3L), task.run(3, 10));
      assertTrue(task.exchange().bytesSent() < LARGE.sizeBytes());
    }
  }

  @Test
  void another_pool_gets_the_artifacts_again_when_the_first_is_lost() throws Exception {
    TestPool.Behaviour dies =
        call -> {
          FlightData opening = call.receive();
          ask(call, SMALL);
          receive(call, SMALL);
          ask(call);
          Behaviours.echoSome(call, opening, 2);
          call.fail(ErrorKind.ERROR_KIND_WORKER, "the worker was killed by SIGKILL", 0);
        };
    CompletableFuture<Void> asked = new CompletableFuture<>();
    try (TestPool pool = TestPool.of(dies, asks(asked, SMALL));
        ExchangeFixture task = task(pool, SMALL)) {
      assertEquals(List.of(1L, 2L, 3L, 4L), task.run(4, 10));
      asked.get();
    }
  }

  @Test
  void a_pool_that_is_lost_while_it_gets_an_artifact_is_asked_again() throws Exception {
    TestPool.Behaviour dies =
        call -> {
          call.receive();
          ask(call, LARGE);
          call.receiveEarly();
          call.fail(ErrorKind.ERROR_KIND_POOL_UNAVAILABLE, "draining", 0);
        };
    CompletableFuture<Void> asked = new CompletableFuture<>();
    try (TestPool pool = TestPool.of(dies, asks(asked, LARGE));
        ExchangeFixture task = task(pool, LARGE)) {
      assertEquals(List.of(1L), task.run(1, 10));
      asked.get();
    }
  }

  @Test
  void an_artifact_that_became_shorter_fails_the_exchange() {
    Given shorter = new Given("shorter", new byte[10], 11);
    try (TestPool pool = TestPool.of(asks(new CompletableFuture<>(), shorter))) {
      ExchangeException error =
          assertThrows(ExchangeException.class, () -> task(pool, shorter).close());
      assertTrue(error.getMessage().contains("ended after 10 bytes"), error.getMessage());
    }
  }

  @Test
  void an_exchange_that_an_error_keeps_from_opening_leaves_nothing_behind() {
    Artifact broken =
        new Artifact() {
          @Override
          public ByteString sha256() {
            return SMALL.sha256();
          }

          @Override
          public long sizeBytes() {
            return SMALL.sizeBytes();
          }

          @Override
          public InputStream open() {
            throw new NoClassDefFoundError("a file system's");
          }
        };
    try (TestPool pool = TestPool.of(asks(new CompletableFuture<>(), SMALL));
        RootAllocator root = new RootAllocator()) {
      assertThrows(
          NoClassDefFoundError.class,
          () ->
              Exchange.open(
                  ClientOptions.of(Peer.POOL, pool.endpoint()),
                  ExchangeFixture.COMMAND,
                  Batches.SCHEMA,
                  root,
                  Replay.NEVER,
                  List.of(broken)));
      assertEquals(List.of(), List.copyOf(root.getChildAllocators()));
    }
  }

  @Test
  void a_pool_that_asks_for_what_nobody_offered_is_refused() {
    try (TestPool pool = TestPool.of(asks(new CompletableFuture<>(), LARGE))) {
      ExchangeException error =
          assertThrows(ExchangeException.class, () -> task(pool, SMALL).close());
      assertEquals(ErrorKind.ERROR_KIND_PROTOCOL, error.kind());
    }
  }

  @Test
  void an_interrupt_ends_the_wait_for_the_pool() throws Exception {
    CompletableFuture<Thread> waiting = new CompletableFuture<>();
    TestPool.Behaviour silent =
        call -> {
          call.receive();
          waiting.get().interrupt();
          call.awaitCancelled();
        };
    try (TestPool pool = TestPool.of(silent)) {
      waiting.complete(Thread.currentThread());
      try (ExchangeFixture task = task(pool, SMALL)) {
        ExchangeException error = assertThrows(ExchangeException.class, () -> task.send(1));
        assertTrue(Thread.interrupted());
        assertEquals("CANCELLED", error.code());
      }
    }
  }

  @Test
  void what_the_function_logs_comes_in_order_with_its_results() throws Exception {
    TestPool.Behaviour logs =
        call -> {
          FlightData opening = call.receive();
          call.send(
              FlightData.reply(
                  ReplyMetadata.newBuilder().addLogLines("one").addLogLines("two").build()));
          Behaviours.echo(call, opening);
        };
    try (TestPool pool = TestPool.of(logs);
        ExchangeFixture task = task(pool)) {
      task.send(1);
      task.exchange().finishSending();
      Reply reply = task.exchange().take();
      assertEquals(Reply.Kind.LOG, reply.kind());
      assertEquals(List.of("one", "two"), reply.lines());
      assertEquals(1, ExchangeFixture.number(task.exchange().take()));
      assertEquals(Reply.Kind.END, task.exchange().take().kind());
    }
  }
}
