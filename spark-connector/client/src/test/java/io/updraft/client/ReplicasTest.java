// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** Tests of the choice between several pods for a call. */
class ReplicasTest {
  private static final List<InetAddress> FOUR = List.of(pod(1), pod(2), pod(3), pod(4));

  private final Replicas replicas = new Replicas();
  private long nowNanos;

  @Test
  @DisplayName("calls that come one after the other go to each pod in turn")
  void turns() {
    Map<InetAddress, Integer> counts = new HashMap<>();
    for (int i = 0; i < 16; i++) {
      Replicas.Place place = choose(FOUR, "task" + i);
      counts.merge(place.address(), 1, Integer::sum);
      place.release();
    }
    assertEquals(Map.of(pod(1), 4, pod(2), 4, pod(3), 4, pod(4), 4), counts);
  }

  @Test
  @DisplayName("a call goes to the pod with the fewest calls")
  void fewest() {
    List<Replicas.Place> places = new ArrayList<>();
    for (int i = 0; i < 8; i++) {
      places.add(choose(FOUR, null));
    }
    Replicas.Place ended = places.get(3);
    ended.release();
    assertEquals(ended.address(), choose(FOUR, null).address());
  }

  @Test
  @DisplayName("calls of one task go to one pod while it has any")
  void together() {
    Replicas.Place first = choose(FOUR, "task");
    choose(FOUR, "other");
    Replicas.Place second = choose(FOUR, "task");
    assertEquals(first.address(), second.address());
    first.release();
    assertEquals(second.address(), choose(FOUR, "task").address());
  }

  @Test
  @DisplayName("a pod that failed comes last for a while, for its own task too")
  void avoided() {
    Replicas.Place failed = choose(FOUR, "task");
    failed.recordDeparture(Replicas.Departure.UNAVAILABLE, nowNanos);
    for (int i = 0; i < 9; i++) {
      assertNotEquals(failed.address(), choose(FOUR, null).address());
    }
    Replicas.Place moved = choose(FOUR, "task");
    assertNotEquals(failed.address(), moved.address());
    assertEquals(moved.address(), choose(FOUR, "task").address());
    failed.release();
    nowNanos += TimeUnit.SECONDS.toNanos(60);
    assertEquals(failed.address(), choose(FOUR, null).address());
  }

  @Test
  @DisplayName(
      "a task that lost a call stays where another of its calls is open, until the pod drains")
  void staysWithItsOtherCalls() {
    Replicas.Place other = choose(FOUR, "task");
    Replicas.Place lost = choose(FOUR, "task");
    lost.recordDeparture(Replicas.Departure.LOST, nowNanos);
    lost.release();
    Replicas.Place again = choose(FOUR, "task");
    assertEquals(other.address(), again.address());
    assertNotEquals(other.address(), choose(FOUR, null).address());
    again.recordDeparture(Replicas.Departure.UNAVAILABLE, nowNanos);
    assertNotEquals(other.address(), choose(FOUR, "task").address());
  }

  @Test
  @DisplayName("calls that a full pod has refused do not keep each other there")
  void leavesWithItsOtherLostCalls() {
    Replicas.Place first = choose(FOUR, "task");
    Replicas.Place second = choose(FOUR, "task");
    assertEquals(first.address(), second.address());
    first.ended();
    second.ended();
    first.recordDeparture(Replicas.Departure.LOST, nowNanos);
    first.release();
    Replicas.Place again = choose(FOUR, "task");
    assertNotEquals(first.address(), again.address());
    second.recordDeparture(Replicas.Departure.LOST, nowNanos);
    second.release();
    assertEquals(again.address(), choose(FOUR, "task").address());
  }

  @Test
  @DisplayName("the failed call of another task does not part a task's calls")
  void staysWhenAnotherTaskFails() {
    List<InetAddress> two = FOUR.subList(0, 2);
    Replicas.Place first = choose(two, "task");
    choose(two, null);
    choose(two, "other").recordDeparture(Replicas.Departure.UNAVAILABLE, nowNanos);
    choose(two, "another").recordDeparture(Replicas.Departure.UNAVAILABLE, nowNanos);
    assertEquals(first.address(), choose(two, "task").address());
  }

  @Test
  @DisplayName("new pods get their share of the calls of many JVMs, not all of them")
  void newPodsTakeTheirShare() {
    int jvms = 1000;
    int calls = 0;
    for (int i = 0; i < jvms; i++) {
      Replicas jvm = new Replicas();
      for (int call = 0; call < 6; call++) {
        jvm.choose(FOUR.subList(0, 3), null, 0).release();
      }
      calls += jvm.choose(FOUR, null, 0).address().equals(pod(4)) ? 1 : 0;
    }
    assertTrue(calls > jvms / 8 && calls < jvms / 2, calls + " of " + jvms);
  }

  @Test
  @DisplayName("where every pod has failed, one is tried all the same")
  void allFailed() {
    List<InetAddress> two = FOUR.subList(0, 2);
    choose(two, null).recordDeparture(Replicas.Departure.UNAVAILABLE, nowNanos);
    choose(two, null).recordDeparture(Replicas.Departure.UNAVAILABLE, nowNanos);
    choose(two, null);
  }

  @Test
  @DisplayName("a new pod is used at once, one that is gone never again")
  void changes() {
    Replicas.Place gone = choose(FOUR.subList(0, 2), "task");
    gone.release();
    List<InetAddress> now = List.of(pod(3), pod(4));
    for (int i = 0; i < 4; i++) {
      assertNotEquals(gone.address(), choose(now, "task").address());
    }
  }

  @Test
  @DisplayName("a task stays at a pod whose address the name has lost, until the pod refuses it")
  void staysWhileThePodIsNotReady() {
    Replicas.Place open = choose(FOUR.subList(0, 1), "task");
    List<InetAddress> others = FOUR.subList(1, 4);
    Replicas.Place second = choose(others, "task");
    assertEquals(open.address(), second.address());
    assertNotEquals(open.address(), choose(others, "other").address());
    second.recordDeparture(Replicas.Departure.UNAVAILABLE, nowNanos);
    assertNotEquals(open.address(), choose(others, "task").address());
  }

  @Test
  @DisplayName("a busy pod comes last for a second, and then as before")
  void busyPods() {
    Replicas.Place busy = choose(FOUR, "task");
    busy.recordDeparture(Replicas.Departure.BUSY, nowNanos);
    busy.release();
    for (int i = 0; i < 9; i++) {
      Replicas.Place other = choose(FOUR, null);
      assertNotEquals(busy.address(), other.address());
      other.release();
    }
    nowNanos += TimeUnit.SECONDS.toNanos(1);
    assertEquals(busy.address(), choose(FOUR, null).address());
  }

  @Test
  @DisplayName("a task stays with its open call, and does not look for another pod")
  void staysWithItsOpenCall() {
    Replicas.Place waiting = choose(FOUR, "task");
    assertTrue(waiting.hasAlternatives());
    Replicas.Place second = choose(FOUR, "task");
    assertEquals(waiting.address(), second.address());
    assertFalse(second.hasAlternatives());
  }

  @Test
  @DisplayName("a pod is an alternative unless it has just lost or refused a call")
  void alternatives() {
    List<InetAddress> two = FOUR.subList(0, 2);
    assertFalse(choose(FOUR.subList(0, 1), null).hasAlternatives());
    Replicas.Place first = choose(two, null);
    assertTrue(first.hasAlternatives());
    first.recordDeparture(Replicas.Departure.BUSY, nowNanos);
    Replicas.Place second = choose(two, null);
    assertNotEquals(first.address(), second.address());
    assertFalse(second.hasAlternatives());
  }

  @Test
  @DisplayName("if all pods are avoided, a busy one comes before one that cannot be reached")
  void theLeastAvoided() {
    List<InetAddress> three = FOUR.subList(0, 3);
    Replicas.Place busy = choose(three, null);
    Replicas.Place lost = choose(three, null);
    Replicas.Place unreachable = choose(three, null);
    unreachable.recordDeparture(Replicas.Departure.UNAVAILABLE, nowNanos);
    unreachable.recordDeparture(Replicas.Departure.BUSY, nowNanos);
    lost.recordDeparture(Replicas.Departure.LOST, nowNanos);
    busy.recordDeparture(Replicas.Departure.BUSY, nowNanos);
    unreachable.release();
    lost.release();
    assertEquals(busy.address(), choose(three, null).address());
    nowNanos += TimeUnit.SECONDS.toNanos(9);
    busy.recordDeparture(Replicas.Departure.UNAVAILABLE, nowNanos);
    assertEquals(lost.address(), choose(three, null).address());
  }

  private Replicas.Place choose(List<InetAddress> addresses, String task) {
    return replicas.choose(addresses, task, nowNanos);
  }

  private static InetAddress pod(int number) {
    try {
      return InetAddress.getByAddress(new byte[] {10, 0, 0, (byte) number});
    } catch (UnknownHostException e) {
      throw new AssertionError(e);
    }
  }
}
