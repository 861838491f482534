// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import java.net.InetAddress;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/**
 * Choice between the pods behind one name for the next call of this JVM. The pod with the fewest
 * calls comes first; among equals, the pod whose last call began longest ago. All calls of one task
 * go to the same pod, so that the pod can recognize them as calls of one task. Otherwise, tasks
 * could deadlock: each would hold a worker of one pod and wait for a worker of another pod. A pod
 * that has just failed or refused a call comes last. The callers resolve names and read the clock.
 */
final class Replicas {
  private static final long AVOIDED_NANOS = TimeUnit.SECONDS.toNanos(10);

  private static final Comparator<Pod> BEST =
      Comparator.<Pod>comparingLong(pod -> pod.calls).thenComparingLong(pod -> pod.lastUse);

  private final Map<InetAddress, Pod> pods = new HashMap<>();
  private final Map<String, Stay> stays = new HashMap<>();
  private long uses;

  private static final class Pod {
    final InetAddress address;
    // Unused pods come first, in random order, so that JVMs do not all start with the same pod.
    long lastUse = -ThreadLocalRandom.current().nextLong(Long.MAX_VALUE);
    int calls;
    boolean failed;
    long failedNanos;

    Pod(InetAddress address) {
      this.address = address;
    }

    boolean isAvoided(long nowNanos) {
      return failed && nowNanos - failedNanos < AVOIDED_NANOS;
    }
  }

  /** Pod that serves a task's calls. It is kept while the task has open calls. */
  private static final class Stay {
    Pod pod;
    int calls;
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
    if (stay.pod == null || stay.pod.isAvoided(nowNanos) || !addresses.contains(stay.pod.address)) {
      stay.pod = best(addresses, nowNanos);
    }
    stay.calls++;
    stay.pod.calls++;
    stay.pod.lastUse = ++uses;
    return new Place(stay.pod, task);
  }

  private Pod best(List<InetAddress> addresses, long nowNanos) {
    Comparator<Pod> order =
        Comparator.<Pod, Boolean>comparing(pod -> pod.isAvoided(nowNanos)).thenComparing(BEST);
    return addresses.stream()
        .map(address -> pods.computeIfAbsent(address, Pod::new))
        .min(order)
        .orElseThrow();
  }

  /** Place of one call at a pod. */
  final class Place {
    private final Pod pod;
    private final String task;

    private Place(Pod pod, String task) {
      this.pod = pod;
      this.task = task;
    }

    InetAddress address() {
      return pod.address;
    }

    /** Record that the call failed. For a while, new calls go to another pod if there is one. */
    void avoid(long nowNanos) {
      synchronized (Replicas.this) {
        pod.failed = true;
        pod.failedNanos = nowNanos;
      }
    }

    /** Release the place when the call is over; call this once. */
    void release() {
      synchronized (Replicas.this) {
        pod.calls--;
        Stay stay = task == null ? null : stays.get(task);
        if (stay != null && --stay.calls == 0) {
          stays.remove(task);
        }
      }
    }
  }
}
