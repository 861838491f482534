// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;

/**
 * The JVM's open calls. One timer, on an event loop that is there anyway, sends a keepalive on each
 * call that has sent nothing for a while, because services end silent calls.
 */
final class KeepAlives {
  private static final long LOOK_SECONDS = 1;

  private static final Set<FlightCall> CALLS = ConcurrentHashMap.newKeySet();

  static {
    EventLoops.GROUP
        .next()
        .scheduleWithFixedDelay(KeepAlives::look, LOOK_SECONDS, LOOK_SECONDS, TimeUnit.SECONDS);
  }

  private KeepAlives() {}

  static void add(FlightCall call) {
    CALLS.add(call);
  }

  static void remove(FlightCall call) {
    CALLS.remove(call);
  }

  private static void look() {
    long nowNanos = System.nanoTime();
    CALLS.removeIf(FlightCall::ended);
    for (FlightCall call : CALLS) {
      try {
        call.keepAlive(nowNanos);
      } catch (RuntimeException | Error e) {
        // The call is broken, and says so to whoever waits for it; the others are not. No memory
        // for one message is an Error of Netty's, and would end the timer for good.
        CALLS.remove(call);
      }
    }
  }
}
