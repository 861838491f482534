// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.grpc.MethodDescriptor;
import io.grpc.Server;
import io.grpc.ServerCallHandler;
import io.grpc.ServerServiceDefinition;
import io.grpc.netty.NettyServerBuilder;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.InetSocketAddress;
import java.util.concurrent.TimeUnit;

/** Server in this JVM with one of Flight's methods, whose messages are raw bytes. */
final class TestServer implements AutoCloseable {
  private final Server server;
  private final int port;

  private TestServer(Server server) {
    this.server = server;
    this.port = server.getPort();
  }

  /** Return a builder for a loopback port; zero means any free port. */
  static NettyServerBuilder onLoopback(int port) {
    return NettyServerBuilder.forAddress(new InetSocketAddress("127.0.0.1", port));
  }

  /** Start a server for the method that this client-side descriptor describes. */
  static TestServer start(
      NettyServerBuilder builder,
      MethodDescriptor<?, ?> method,
      ServerCallHandler<byte[], byte[]> handler) {
    MethodDescriptor<byte[], byte[]> served = method.toBuilder(new Bytes(), new Bytes()).build();
    ServerServiceDefinition service =
        ServerServiceDefinition.builder(served.getServiceName()).addMethod(served, handler).build();
    try {
      return new TestServer(
          builder.addService(service).maxInboundMessageSize(1 << 30).build().start());
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  int port() {
    return port;
  }

  Endpoint endpoint() {
    return Endpoint.parse("grpc://127.0.0.1:" + port());
  }

  /** Break every connection, as a killed process would. Afterwards, nothing listens at the port. */
  @Override
  public void close() {
    server.shutdownNow();
    try {
      if (!server.awaitTermination(60, TimeUnit.SECONDS)) {
        throw new IllegalStateException("the server still listens at port " + port);
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  private static final class Bytes implements MethodDescriptor.Marshaller<byte[]> {
    @Override
    public InputStream stream(byte[] value) {
      return new ByteArrayInputStream(value);
    }

    @Override
    public byte[] parse(InputStream stream) {
      try {
        return stream.readAllBytes();
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }
  }
}
