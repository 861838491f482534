// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import java.util.concurrent.atomic.AtomicInteger;

/**
 * Call as a core sees it, created at time zero.
 *
 * @param connected whether it has reached the wire
 * @param hasAlternatives whether another pod may have a free worker
 */
record TestCall(boolean connected, boolean hasAlternatives) implements CallCore.Call {
  private static final AtomicInteger ENDPOINTS = new AtomicInteger();

  /**
   * Return an endpoint that no other test uses. All cores of one endpoint share its budget for
   * retries, and a test must not wait because of the retries of another.
   */
  static Endpoint newEndpoint() {
    return Endpoint.parse("grpc://127.0.0.1:" + ENDPOINTS.incrementAndGet());
  }

  TestCall(boolean connected) {
    this(connected, false);
  }

  @Override
  public long startedNanos() {
    return 0;
  }

  @Override
  public Recovery.Reachability reach() {
    return connected ? Recovery.Reachability.ANSWERED : Recovery.Reachability.RESOLVED;
  }

  @Override
  public String explanation() {
    return connected ? "" : " (explained)";
  }

  @Override
  public void request(int messages) {
    throw new AssertionError("a core requests nothing");
  }
}
