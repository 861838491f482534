// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Server;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerServiceDefinition;
import io.grpc.Status;
import io.grpc.netty.NettyServerBuilder;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.InetSocketAddress;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.RejectedExecutionException;

/**
 * A pool in this JVM that does what a test tells it: the first call runs the first behaviour, and
 * so on; the last one serves all that follow.
 */
final class TestPool implements AutoCloseable {
  /** What the pool does with one call, on a thread of its own. */
  interface Behaviour {
    void run(PoolCall call) throws Exception;
  }

  private final ExecutorService threads = Executors.newCachedThreadPool();
  private final ConcurrentLinkedQueue<Behaviour> behaviours;
  private final List<PoolCall> calls = new CopyOnWriteArrayList<>();
  private final Server server;

  private TestPool(NettyServerBuilder builder, List<Behaviour> behaviours) {
    this.behaviours = new ConcurrentLinkedQueue<>(behaviours);
    MethodDescriptor<byte[], byte[]> method =
        MethodDescriptor.<byte[], byte[]>newBuilder()
            .setType(MethodDescriptor.MethodType.BIDI_STREAMING)
            .setFullMethodName(FlightMethod.DO_EXCHANGE.getFullMethodName())
            .setRequestMarshaller(new Bytes())
            .setResponseMarshaller(new Bytes())
            .build();
    ServerCallHandler<byte[], byte[]> handler = this::handle;
    try {
      this.server =
          builder
              .addService(
                  ServerServiceDefinition.builder(method.getServiceName())
                      .addMethod(method, handler)
                      .build())
              .maxInboundMessageSize(1 << 30)
              .build()
              .start();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  static TestPool of(Behaviour... behaviours) {
    return new TestPool(
        NettyServerBuilder.forAddress(new InetSocketAddress("127.0.0.1", 0)), List.of(behaviours));
  }

  static TestPool of(NettyServerBuilder builder, Behaviour... behaviours) {
    return new TestPool(builder, List.of(behaviours));
  }

  int port() {
    return server.getPort();
  }

  Endpoint endpoint() {
    return Endpoint.parse("grpc://127.0.0.1:" + port());
  }

  /** The calls so far. */
  List<PoolCall> calls() {
    return calls;
  }

  /** Breaks every connection, as a killed process would. */
  void kill() {
    server.shutdownNow();
  }

  private ServerCall.Listener<byte[]> handle(ServerCall<byte[], byte[]> call, Metadata headers) {
    Behaviour behaviour = behaviours.size() > 1 ? behaviours.poll() : behaviours.peek();
    PoolCall poolCall = new PoolCall(call, headers);
    calls.add(poolCall);
    try {
      threads.execute(() -> run(behaviour, poolCall));
    } catch (RejectedExecutionException e) {
      poolCall.close(Status.UNAVAILABLE, new Metadata());
    }
    return poolCall.listener();
  }

  private static void run(Behaviour behaviour, PoolCall call) {
    try {
      behaviour.run(call);
    } catch (PoolCall.Gone e) {
      // The client left; the test looks at its own side.
    } catch (Exception e) {
      call.close(Status.INTERNAL.withDescription("test pool: " + e), new Metadata());
    }
  }

  @Override
  public void close() {
    server.shutdownNow();
    threads.shutdownNow();
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
