// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.grpc.Metadata;
import io.grpc.ServerCall;
import io.grpc.Status;
import io.grpc.netty.NettyServerBuilder;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.RejectedExecutionException;

/**
 * Pool in this JVM with behaviors chosen by a test. The first call runs the first behavior, and so
 * on; all later calls run the last behavior.
 */
final class TestPool implements AutoCloseable {
  /** Behavior of the pool in one call, on a thread of its own. */
  interface Behaviour {
    void run(PoolCall call) throws Exception;
  }

  private final ExecutorService threads = Executors.newCachedThreadPool();
  private final ConcurrentLinkedQueue<Behaviour> behaviours;
  private final List<PoolCall> calls = new CopyOnWriteArrayList<>();
  private final TestServer server;

  private TestPool(NettyServerBuilder builder, List<Behaviour> behaviours) {
    this.behaviours = new ConcurrentLinkedQueue<>(behaviours);
    this.server = TestServer.start(builder, FlightMethod.DO_EXCHANGE, this::handle);
  }

  static TestPool of(Behaviour... behaviours) {
    return of(TestServer.onLoopback(0), behaviours);
  }

  static TestPool of(NettyServerBuilder builder, Behaviour... behaviours) {
    return new TestPool(builder, List.of(behaviours));
  }

  int port() {
    return server.port();
  }

  Endpoint endpoint() {
    return server.endpoint();
  }

  /** Return the calls so far. */
  List<PoolCall> calls() {
    return calls;
  }

  /** Break every connection, as a killed process would. */
  void kill() {
    server.close();
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
      // The client has left. The test checks the client's side.
    } catch (Exception e) {
      call.close(Status.INTERNAL.withDescription("test pool: " + e), new Metadata());
    }
  }

  @Override
  public void close() {
    server.close();
    threads.shutdownNow();
  }
}
