// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import java.net.InetAddress;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;

/**
 * Choice between the pods behind one name for the next call of this JVM. The pod with the fewest
 * calls comes first; among equals, the pod whose last call began longest ago. All calls of one task
 * go to the same pod, so that the pod can recognize them as calls of one task. Otherwise, tasks
 * could deadlock: each would hold a worker of one pod and wait for a worker of another pod. So a
 * task leaves its pod only if the pod drains or cannot be reached, and stays if the name loses the
 * pod's address, as it does while the pod is not ready. A pod that has just lost or refused a call
 * comes last for all other calls. The callers resolve names and read the clock.
 */
final class Replicas {
  private static final long AVOIDED_NANOS = TimeUnit.SECONDS.toNanos(10);

  private static final Comparator<Pod> BEST =
      Comparator.<Pod>comparingLong(pod -> pod.calls).thenComparingLong(pod -> pod.lastUse);

  private final LongSupplier firstUse;
  private final Map<InetAddress, Pod> pods = new LinkedHashMap<>();
  private final Map<String, Stay> stays = new HashMap<>();

  /**
   * Rank of the last use. Ranks of uses are even, which leaves places between them for new pods.
   */
  private long uses;

  private static final class Pod {
    final InetAddress address;
    long lastUse;
    int calls;
    boolean failed;
    long failedNanos;

    Pod(InetAddress address, long lastUse) {
      this.address = address;
      this.lastUse = lastUse;
    }

    boolean isAvoided(long nowNanos) {
      return failed && nowNanos - failedNanos < AVOIDED_NANOS;
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
   * @param firstUse returns a random negative number: the rank of one of the first pods, the lowest
   *     of which comes first, or the choice of a place for a later pod
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
    if (stay.calls == 0 || stay.over) {
      stay.pod = best(addresses, nowNanos);
      stay.over = false;
    }
    stay.calls++;
    stay.pod.calls++;
    uses += 2;
    stay.pod.lastUse = uses;
    return new Place(stay.pod, stay, task);
  }

  private Pod best(List<InetAddress> addresses, long nowNanos) {
    List<Long> ranks = pods.values().stream().map(pod -> pod.lastUse).toList();
    Comparator<Pod> order =
        Comparator.<Pod, Boolean>comparing(pod -> pod.isAvoided(nowNanos)).thenComparing(BEST);
    return addresses.stream()
        .map(address -> pods.computeIfAbsent(address, a -> new Pod(a, rankAmong(ranks))))
        .min(order)
        .orElseThrow();
  }

  /**
   * Return the rank of a pod that was just found. If other pods are known, the new one takes a
   * random place among them. If it came first, every JVM would send its next calls to new pods
   * alone, and the calls of all JVMs together would overload those pods.
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
    private boolean ended;

    private Place(Pod pod, Stay stay, String task) {
      this.pod = pod;
      this.stay = stay;
      this.task = task;
    }

    InetAddress address() {
      return pod.address;
    }

    /**
     * Record that the pod takes no calls: it drains, or could not be reached. For a while, new
     * calls go to another pod if there is one.
     */
    void avoid(long nowNanos) {
      synchronized (Replicas.this) {
        lost(nowNanos);
        stay.over |= stay.pod == pod;
      }
    }

    /**
     * Record that the call was lost, or refused because the pod was full. For a while, new calls go
     * to another pod, except those of a task that still has another call open here: that call may
     * hold a worker and wait for the new one.
     */
    void lost(long nowNanos) {
      synchronized (Replicas.this) {
        pod.failed = true;
        pod.failedNanos = nowNanos;
      }
    }

    /**
     * Record that the call is over, so that it no longer keeps other calls of its task at the pod.
     * A lost call has its place until another one replaces it. If it kept the others, calls that a
     * full pod has refused would keep each other there.
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
