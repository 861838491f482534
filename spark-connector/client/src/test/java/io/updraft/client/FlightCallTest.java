// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.Metadata;
import io.grpc.Status;
import io.updraft.proto.v1.RequestMetadata;
import io.updraft.proto.v1.TaskIdentity;
import java.util.List;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class FlightCallTest {
  /** Call whose hooks do nothing. */
  private static final class SilentCall extends FlightCall {
    SilentCall(ClientOptions options, BufferAllocator allocator) {
      super(options, new BearerToken(options), TaskIdentity.getDefaultInstance(), allocator, 0);
    }

    @Override
    void onReady(boolean first) {}

    @Override
    boolean onMessage(IncomingMessage message) {
      return true;
    }

    @Override
    void onBroken(Failure failure) {}

    @Override
    void onClosed(Status status, Metadata trailers) {}

    @Override
    RequestMetadata keepAlive() {
      return RequestMetadata.getDefaultInstance();
    }
  }

  @Test
  void a_call_takes_nothing_before_it_is_started() throws Exception {
    try (TestPool pool = TestPool.of(Behaviours::echo);
        BufferAllocator allocator = new RootAllocator()) {
      ClientOptions options = ClientOptions.of(Peer.POOL, pool.endpoint());
      // On a new channel, gRPC answers isReady even for a call that was not started. So use the
      // channel first.
      try (ExchangeFixture task = new ExchangeFixture(options, Replay.REPLAY)) {
        assertEquals(List.of(1L), task.run(1, 10));
      }
      FlightCall call = new SilentCall(options, allocator);
      assertFalse(call.isReady());
      call.close("the test is over");
    }
  }

  @Test
  void a_call_that_was_cancelled_before_it_is_started_never_reaches_the_pool() throws Exception {
    try (TestPool pool = TestPool.of(Behaviours::echo);
        BufferAllocator allocator = new RootAllocator()) {
      ClientOptions options = ClientOptions.of(Peer.POOL, pool.endpoint());
      FlightCall call = new SilentCall(options, allocator);
      call.cancel("the task was killed");
      assertEquals(0, call.start(ExchangeFixture.COMMAND.toByteString(), new byte[0], 1));
      call.halfClose();
      assertTrue(call.ended());
      call.close("the test is over");
      assertEquals(List.of(), pool.calls());
    }
  }
}
