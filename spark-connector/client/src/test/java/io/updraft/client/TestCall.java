// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

/**
 * Call as a core sees it, created at time zero.
 *
 * @param connected whether it has reached the wire
 * @param hasAlternatives whether another pod may have a free worker
 */
record TestCall(boolean connected, boolean hasAlternatives) implements CallCore.Call {
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
