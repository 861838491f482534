// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.netty.GrpcSslContexts;
import io.grpc.netty.NettyServerBuilder;
import io.netty.channel.Channel;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.SingleThreadEventLoop;
import io.netty.channel.epoll.EpollEventLoopGroup;
import io.netty.channel.epoll.EpollServerDomainSocketChannel;
import io.netty.handler.ssl.ClientAuth;
import io.netty.handler.ssl.SslContextBuilder;
import io.netty.handler.ssl.SslProvider;
import io.netty.pkitesting.CertificateBuilder;
import io.netty.pkitesting.X509Bundle;
import io.netty.util.concurrent.EventExecutor;
import io.updraft.proto.v1.ErrorKind;
import io.updraft.proto.v1.WriteCommand;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;
import org.junit.jupiter.api.io.TempDir;

@Timeout(120)
final class TransportTest {
  private final X509Bundle authority = authority("Updraft's test authority");
  private final X509Bundle server = signed(authority, "CN=pool");
  private final X509Bundle client = signed(authority, "CN=executor");

  private static X509Bundle authority(String name) {
    return build(certificate("CN=" + name).setIsCertificateAuthority(true), null);
  }

  private static X509Bundle signed(X509Bundle issuer, String subject) {
    return build(certificate(subject).addSanIpAddress("127.0.0.1"), issuer);
  }

  private static CertificateBuilder certificate(String subject) {
    return new CertificateBuilder().algorithm(CertificateBuilder.Algorithm.ecp256).subject(subject);
  }

  private static X509Bundle build(CertificateBuilder builder, X509Bundle issuer) {
    try {
      return issuer == null ? builder.buildSelfSigned() : builder.buildIssuedBy(issuer);
    } catch (Exception e) {
      throw new AssertionError(e);
    }
  }

  private TestPool tlsPool(ClientAuth clientAuth) throws Exception {
    SslContextBuilder context =
        SslContextBuilder.forServer(server.toKeyManagerFactory())
            .trustManager(authority.toTrustManagerFactory())
            .clientAuth(clientAuth);
    return TestPool.of(
        TestServer.onLoopback(0)
            .sslContext(GrpcSslContexts.configure(context, SslProvider.JDK).build()),
        Behaviours::echo);
  }

  private static ClientOptions tls(TestPool pool, X509Bundle trusted) throws Exception {
    TlsFiles files = trusting(trusted.toTempRootCertPem());
    return ClientOptions.of(Peer.POOL, Endpoint.parse("grpc+tls://127.0.0.1:" + pool.port()))
        .changed(
            o -> {
              o.connectTimeout = Duration.ofSeconds(20);
              o.tls = files;
            });
  }

  private static TlsFiles trusting(File ca) {
    return new TlsFiles(ca.getPath(), "", "");
  }

  private static List<Long> exchanged(ClientOptions options) throws InterruptedException {
    try (ExchangeFixture task = new ExchangeFixture(options, Replay.REPLAY)) {
      return task.run(3, 100_000);
    }
  }

  @Test
  void batches_travel_over_tls() throws Exception {
    try (TestPool pool = tlsPool(ClientAuth.NONE)) {
      assertEquals(List.of(1L, 2L, 3L), exchanged(tls(pool, authority)));
    }
  }

  @Test
  void a_connection_hands_several_batches_to_its_socket_at_once() throws Exception {
    try (TestPool pool = TestPool.of(Behaviours::echo);
        ExchangeFixture task =
            new ExchangeFixture(
                ClientOptions.of(Peer.POOL, Endpoint.parse("grpc://127.0.0.1:" + pool.port())),
                Replay.REPLAY)) {
      assertEquals(List.of(1L), task.run(1, 100_000));
      assertEquals(
          List.of(4 << 20),
          connectionsTo(pool.port()).stream()
              .map(connection -> connection.config().getWriteBufferHighWaterMark())
              .toList());
    }
  }

  private static List<Channel> connectionsTo(int port) throws Exception {
    List<Channel> found = new ArrayList<>();
    for (EventExecutor loop : EventLoops.GROUP) {
      loop.submit(
              () ->
                  ((SingleThreadEventLoop) loop)
                      .registeredChannelsIterator()
                      .forEachRemaining(found::add))
          .get();
    }
    return found.stream()
        .filter(
            channel ->
                channel.remoteAddress() instanceof InetSocketAddress peer && peer.getPort() == port)
        .toList();
  }

  @Test
  void a_client_shows_its_certificate_where_the_pool_wants_one() throws Exception {
    try (TestPool pool = tlsPool(ClientAuth.REQUIRE)) {
      TlsFiles files =
          new TlsFiles(
              authority.toTempRootCertPem().getPath(),
              client.toTempCertChainPem().getPath(),
              client.toTempPrivateKeyPem().getPath());
      ClientOptions options = tls(pool, authority).changed(o -> o.tls = files);
      assertEquals(List.of(1L, 2L, 3L), exchanged(options));
    }
  }

  @Test
  void a_pool_that_another_authority_signed_is_not_talked_to() throws Exception {
    try (TestPool pool = tlsPool(ClientAuth.NONE)) {
      ClientOptions options = tls(pool, authority("a stranger"));
      ExchangeException error = assertThrows(ExchangeException.class, () -> exchanged(options));
      assertEquals(ErrorKind.ERROR_KIND_POOL_UNAVAILABLE, error.kind());
      assertTrue(error.getMessage().contains(options.endpoint().toString()), error.getMessage());
      assertTrue(
          error.getMessage().contains(Peer.POOL.setting(Peer.Setting.TLS_CA_FILE)),
          error.getMessage());
      assertTrue(pool.calls().isEmpty());
    }
  }

  @Test
  void a_writer_that_another_authority_signed_is_not_asked_twice() throws Exception {
    try (TestPool writer = tlsPool(ClientAuth.NONE)) {
      ClientOptions options =
          tls(writer, authority("a stranger")).changed(o -> o.peer = Peer.WRITER);
      WriteCheck.Refusal refusal =
          WriteCheck.ask(options, WriteCommand.getDefaultInstance()).orElseThrow();
      assertTrue(
          refusal.message().contains(Peer.WRITER.setting(Peer.Setting.TLS_CA_FILE)),
          refusal.message());
      assertFalse(refusal.temporary());
    }
  }

  @Test
  void tls_files_that_are_not_there_are_named(@TempDir Path directory) {
    ClientOptions options =
        ClientOptions.of(Peer.POOL, Endpoint.parse("grpc+tls://127.0.0.1:1"))
            .changed(o -> o.tls = trusting(directory.resolve("ca.pem").toFile()));
    String message =
        assertThrows(IllegalArgumentException.class, () -> exchanged(options)).getMessage();
    assertTrue(message.contains("ca.pem"), message);
  }

  @Test
  @EnabledOnOs(OS.LINUX)
  @SuppressWarnings("deprecation") // Its replacement is missing in the Netty of Spark 4.0.
  void batches_travel_over_a_unix_socket_without_a_warning(@TempDir Path directory)
      throws Exception {
    String path = directory.resolve("pool.sock").toString();
    PrintStream stderr = System.err;
    EventLoopGroup loops = new EpollEventLoopGroup(1);
    NettyServerBuilder builder =
        NettyServerBuilder.forAddress(new io.netty.channel.unix.DomainSocketAddress(path))
            .channelType(EpollServerDomainSocketChannel.class)
            .bossEventLoopGroup(loops)
            .workerEventLoopGroup(loops);
    try (TestPool pool = TestPool.of(builder, Behaviours::echo)) {
      ClientOptions options = ClientOptions.of(Peer.POOL, Endpoint.parse("grpc+unix://" + path));
      ByteArrayOutputStream log = new ByteArrayOutputStream();
      System.setErr(new PrintStream(log, true));
      assertEquals(List.of(1L, 2L, 3L), exchanged(options));
      assertEquals(1, pool.calls().size());
      assertFalse(log.toString().contains("netty.bootstrap.Bootstrap"), log::toString);
    } finally {
      System.setErr(stderr);
      loops.shutdownGracefully(0, 0, java.util.concurrent.TimeUnit.SECONDS);
    }
  }

  @Test
  void exchanges_share_a_connection_and_leave_no_threads_but_grpcs() throws Exception {
    try (TestPool pool = TestPool.of(Behaviours::echo)) {
      ClientOptions options = ClientOptions.of(Peer.POOL, pool.endpoint());
      exchanged(options);
      Set<String> before = threads();
      for (int i = 0; i < 20; i++) {
        String token = "token " + i;
        exchanged(options.changed(o -> o.token = token));
      }
      Set<String> after = threads();
      after.removeAll(before);
      after.removeIf(name -> name.startsWith("pool-"));
      after.removeIf(name -> name.startsWith("grpc-"));
      assertEquals(Set.of(), after);
    }
  }

  private static Set<String> threads() {
    return Thread.getAllStackTraces().keySet().stream()
        .map(Thread::getName)
        .collect(Collectors.toSet());
  }
}
