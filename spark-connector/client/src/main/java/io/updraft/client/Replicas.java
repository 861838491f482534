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
 * go to the same pod, so that the pod can recognize them as calls of one task. Otherwise, tasks
 * could deadlock: each would hold a worker of one pod and wait for a worker of another pod. So a
 * task with open calls leaves its pod only if the pod drains or cannot be reached. It stays if the
 * name loses the pod's address, as it does while the pod is not ready. (Behind a load balancer with
 * one address, the calls of a task may still reach different pods.) For a while, a pod that has
 * lost or refused a call comes last for the calls of other tasks. The callers resolve names and
 * read the clock.
 */
final class Replicas {
  private final LongSupplier firstUse;
  private final Map<InetAddress, Pod> pods = new LinkedHashMap<>();
  private final Map<String, Stay> stays = new HashMap<>();

  /**
   * Rank of the last use. Ranks of uses are even, which leaves places between them for new pods.
   */
  private long uses;

  /**
   * Reason why a call leaves its pod, with the time for which other calls avoid the pod. The later
   * reasons weigh more.
   */
  enum Departure {
    /** All workers were busy. One of them may come free soon. */
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

    /** Weightiest reason in the latest period of avoidance; null before the first period. */
    Departure avoidedFor;

    long avoidedUntilNanos;

    Pod(InetAddress address, long lastUse) {
      this.address = address;
      this.lastUse = lastUse;
    }

    boolean isAvoided(long nowNanos) {
      return avoidedFor != null && avoidedUntilNanos - nowNanos > 0;
    }

    /** Return a number that is larger for pods that are less likely to serve a call. */
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

  /** Pod that serves a task's calls. It is kept while the task has open calls. */
  private static final class Stay {
    Pod pod;
    int calls;

    /** True if the pod takes no more calls of the task. */
    boolean over;
  }

  Replicas() {
    // The first pods come in random order, so that JVMs do not all start with the same pod.
    this(() -> -ThreadLocalRandom.current().nextLong(Long.MAX_VALUE));
  }

  /**
   * Create an empty choice.
   *
   * @param firstUse returns a random negative number. While no other pod is known, it is the pod's
   *     rank, and the pod with the lowest rank comes first. Later, it selects the pod's place among
   *     the others
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
   * them. If it came first, every JVM would send its next calls only to new pods, and the calls of
   * all JVMs together would overload those pods.
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
     * Return whether the call may go to another pod that has not just lost or refused a call. A
     * task that has another call open at this pod has to stay.
     */
    boolean hasAlternatives() {
      return alternatives;
    }

    /**
     * Record why the call leaves the pod. For a while, new calls go to another pod if there is one.
     * Calls of a task that still has another call open here follow only if the pod is unavailable:
     * the open call may hold a worker and wait for them.
     */
    void recordDeparture(Departure why, long nowNanos) {
      synchronized (Replicas.this) {
        pod.avoid(why, nowNanos);
        stay.over |= why == Departure.UNAVAILABLE && stay.pod == pod;
      }
    }

    /**
     * Record that the call is over, so that it no longer keeps other calls of its task at the pod.
     * A lost call holds its place until another call replaces it. Without this method, the calls of
     * a task that a full pod has refused would keep each other at that pod.
     */
    void ended() {
      synchronized (Replicas.this) {
        if (!ended) {
          ended = true;
          stay.calls--;
        }
      }
    }

    /** Release the place when the call is over; call this once. */
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
