// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayDeque;
import java.util.Deque;
import org.junit.jupiter.api.Test;

/** Tests of the window on a model of a network and a function, in microseconds. */
final class WindowSizeTest {
  private static final int SMALLEST = 4;

  private final WindowSize window = new WindowSize(SMALLEST);
  private long worked;

  /** Send batches for a while, and return the share of that time in which the function worked. */
  private double share(long roundTrip, long work, long microseconds) {
    Deque<Long> taken = new ArrayDeque<>();
    long now = 0;
    long sent = 0;
    long known = 0;
    long free = 0;
    worked = 0;
    while (now < microseconds) {
      while (sent - known < window.batches()) {
        sent++;
        window.sent(sent, known, now * 1_000);
        long takes = Math.max(now + roundTrip / 2, free);
        free = takes + work;
        worked += work;
        taken.add(takes + roundTrip / 2);
      }
      now = taken.remove();
      known++;
      window.taken(known, now * 1_000);
    }
    return (double) worked / Math.max(now, free);
  }

  @Test
  void a_slow_function_keeps_a_small_window() {
    assertTrue(share(200, 10_000, 1_000_000) > 0.99);
    assertTrue(window.batches() <= SMALLEST + 1, "has room for " + window.batches());
  }

  @Test
  void a_light_function_far_away_never_waits_once_the_window_has_grown() {
    assertTrue(share(5_000, 1_000, 1_000_000) > 0.95);
    assertTrue(window.batches() <= SMALLEST + 6, "has room for " + window.batches());
  }

  @Test
  void a_very_light_function_far_away_gets_a_wide_window() {
    assertTrue(share(20_000, 500, 2_000_000) > 0.9);
    assertTrue(window.batches() <= SMALLEST + 41, "has room for " + window.batches());
  }

  @Test
  void the_window_stays_wide_when_the_function_becomes_slow() {
    share(5_000, 500, 1_000_000);
    long wide = window.batches();
    assertTrue(wide > SMALLEST + 5, "has room for " + wide);
    window.restart();
    share(5_000, 50_000, 5_000_000);
    assertEquals(wide, window.batches());
  }

  @Test
  void a_slow_first_batch_does_not_more_than_double_the_window() {
    window.sent(1, 0, 0);
    window.taken(1, 2_000_000_000L);
    assertTrue(share(200, 10_000, 1_000_000) > 0.99);
    assertTrue(window.batches() <= 2 * SMALLEST, "has room for " + window.batches());
  }

  @Test
  void a_new_call_does_not_count_the_time_of_the_last_one() {
    window.sent(1, 0, 0);
    window.restart();
    window.sent(1, 0, 1_000_000_000);
    window.taken(1, 1_000_001_000);
    assertEquals(SMALLEST + 1, window.batches());
  }
}
