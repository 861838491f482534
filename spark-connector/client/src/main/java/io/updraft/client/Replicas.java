// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import java.net.InetAddress;
import java.time.Duration;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.LongSupplier;

/**
 * Choice between the pods behind one name for the next call of this JVM. The pod with the fewest
 * calls comes first; among equals, the pod whose last call began longest ago. All calls of one task
 * go to the same pod, so that the pod can recognize them as calls of one task. Otherwise tasks
 * could deadlock: each could hold a worker of one pod and wait for a worker of another pod. For
 * this reason, a task with open calls leaves its pod only if the pod drains or cannot be reached.
 * The task stays even if the name no longer resolves to the pod's address, which happens while the
 * pod is not ready. (Behind a load balancer with one address, the calls of a task may still reach
 * different pods.) A pod that has lost or refused a call comes last for a while when a pod is
 * chosen for other tasks. Callers resolve names and pass in the time.
 */
final class Replicas {
  private final LongSupplier firstUse;
  private final Map<InetAddress, Pod> pods = new LinkedHashMap<>();
  private final Map<String, Stay> stays = new HashMap<>();

  /**
   * Rank of the latest use of any pod. Ranks of uses are even numbers, so that a new pod can
   * receive an odd rank between two of them.
   */
  private long uses;

  /**
   * Reason why a call leaves its pod, with the time for which other calls avoid the pod. If several
   * reasons apply to a pod, the last in this list wins.
   */
  enum Departure {
    /** All workers were busy. A worker may become free soon. */
    BUSY(Duration.ofSeconds(1)),
    /** The call was lost, or refused because the pod was full. */
    LOST(Duration.ofSeconds(10)),
    /** The pod takes no calls: it drains, or could not be reached. */
    UNAVAILABLE(Duration.ofSeconds(10));

    private final long avoidedNanos;

    Departure(Duration avoided) {
      this.avoidedNanos = avoided.toNanos();
    }
  }

  private static final class Pod {
    final InetAddress address;
    long lastUse;
    int calls;

    /**
     * Last reason, in order of the enum, in the current or latest period of avoidance; null before
     * the first period.
     */
    Departure avoidedFor;

    long avoidedUntilNanos;

    Pod(InetAddress address, long lastUse) {
      this.address = address;
      this.lastUse = lastUse;
    }

    boolean isAvoided(long nowNanos) {
      return avoidedFor != null && avoidedUntilNanos - nowNanos > 0;
    }

    /** Return a larger number for a pod that is less likely to serve a call. */
    int avoidance(long nowNanos) {
      return isAvoided(nowNanos) ? 1 + avoidedFor.ordinal() : 0;
    }

    void avoid(Departure why, long nowNanos) {
      long untilNanos = nowNanos + why.avoidedNanos;
      boolean avoided = isAvoided(nowNanos);
      if (!avoided || why.compareTo(avoidedFor) > 0) {
        avoidedFor = why;
      }
      if (!avoided || untilNanos - avoidedUntilNanos > 0) {
        avoidedUntilNanos = untilNanos;
      }
    }
  }

  /** Pod that serves the calls of one task, remembered while the task has open calls. */
  private static final class Stay {
    Pod pod;
    int calls;

    /** True if the next call of the task must choose a pod again. */
    boolean over;
  }

  Replicas() {
    // The first pods come in random order, so that JVMs do not all start with the same pod.
    this(() -> -ThreadLocalRandom.current().nextLong(Long.MAX_VALUE));
  }

  /**
   * Create an empty choice.
   *
   * @param firstUse returns a random negative number. For the first pods, this number is the rank;
   *     the pod with the lowest rank comes first. For a pod that is added later, the number selects
   *     its place among the known pods
   */
  Replicas(LongSupplier firstUse) {
    this.firstUse = firstUse;
  }

  /**
   * Return a place for one more call.
   *
   * @param addresses the current addresses of the name; not empty
   * @param task the task that makes the call; null if there is none
   */
  synchronized Place choose(List<InetAddress> addresses, String task, long nowNanos) {
    pods.values().removeIf(pod -> pod.calls == 0 && !addresses.contains(pod.address));
    Stay stay = task == null ? new Stay() : stays.computeIfAbsent(task, ignored -> new Stay());
    boolean isAlone = stay.calls == 0;
    if (isAlone || stay.over) {
      stay.pod = best(addresses, nowNanos);
      stay.over = false;
    }
    stay.calls++;
    stay.pod.calls++;
    uses += 2;
    stay.pod.lastUse = uses;
    boolean alternatives = isAlone && hasAlternative(stay.pod, addresses, nowNanos);
    return new Place(stay.pod, stay, task, alternatives);
  }

  private Pod best(List<InetAddress> addresses, long nowNanos) {
    List<Long> ranks = pods.values().stream().map(pod -> pod.lastUse).toList();
    Comparator<Pod> order =
        Comparator.<Pod>comparingInt(pod -> pod.avoidance(nowNanos))
            .thenComparingInt(pod -> pod.calls)
            .thenComparingLong(pod -> pod.lastUse);
    return addresses.stream()
        .map(address -> pods.computeIfAbsent(address, a -> new Pod(a, rankAmong(ranks))))
        .min(order)
        .orElseThrow();
  }

  private boolean hasAlternative(Pod chosen, List<InetAddress> addresses, long nowNanos) {
    return addresses.stream()
        .map(pods::get)
        .anyMatch(pod -> pod != chosen && !pod.isAvoided(nowNanos));
  }

  /**
   * Return the rank of a new pod. If other pods are known, the new pod takes a random place among
   * them. If new pods always came first, every JVM would send its next calls only to new pods, and
   * the calls of all JVMs together would overload these pods.
   */
  private long rankAmong(List<Long> ranks) {
    long rank = firstUse.getAsLong();
    return ranks.isEmpty() ? rank : ranks.get((int) Math.floorMod(rank, (long) ranks.size())) - 1;
  }

  /** Place of one call at a pod. */
  final class Place {
    private final Pod pod;
    private final Stay stay;
    private final String task;
    private final boolean alternatives;
    private boolean ended;

    private Place(Pod pod, Stay stay, String task, boolean alternatives) {
      this.pod = pod;
      this.stay = stay;
      this.task = task;
      this.alternatives = alternatives;
    }

    InetAddress address() {
      return pod.address;
    }

    /**
     * Return whether the call may move to a pod that has not recently lost or refused a call.
     * Always false if the task has another open call, because the task must then stay at this pod.
     */
    boolean hasAlternatives() {
      return alternatives;
    }

    /**
     * Record why the call leaves the pod. For a while, new calls of other tasks use another pod if
     * possible. If the task has another open call at this pod, its new calls leave the pod only if
     * the pod is unavailable, because the open call may hold a worker and wait for the new calls.
     */
    void recordDeparture(Departure why, long nowNanos) {
      synchronized (Replicas.this) {
        pod.avoid(why, nowNanos);
        stay.over |= why == Departure.UNAVAILABLE && stay.pod == pod;
      }
    }

    /**
     * Record that the call is over, so that it no longer ties other calls of its task to the pod. A
     * lost call releases its place only when another call replaces it. Without this method, refused
     * calls of one task would keep each other at a full pod.
     */
    void ended() {
      synchronized (Replicas.this) {
        if (!ended) {
          ended = true;
          stay.calls--;
        }
      }
    }

    /** Release the place. Call this once, after the call is over. */
    void release() {
      synchronized (Replicas.this) {
        ended();
        pod.calls--;
        if (stay.calls == 0 && task != null) {
          stays.remove(task, stay);
        }
      }
    }
  }
}
