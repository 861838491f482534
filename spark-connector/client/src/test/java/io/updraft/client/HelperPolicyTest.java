// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

final class HelperPolicyTest {
  private static final long MS = 1_000_000;
  private static final int MOST = 7;

  private final HelperPolicy policy = new HelperPolicy(MOST);

  @Test
  void a_task_without_a_reply_asks_for_no_helper() {
    policy.waited(60_000 * MS);
    assertFalse(policy.isDue(0, 60_000 * MS));
  }

  @Test
  void a_task_waits_as_long_as_its_first_reply_took_before_it_asks() {
    policy.replied(0, 400 * MS);
    policy.waited(399 * MS);
    assertFalse(policy.isDue(0, 800 * MS));
    policy.waited(MS);
    assertTrue(policy.isDue(0, 800 * MS));
  }

  @Test
  void the_wait_for_the_first_reply_does_not_count() {
    policy.waited(400 * MS);
    policy.replied(0, 400 * MS);
    assertFalse(policy.isDue(0, 401 * MS));
  }

  @Test
  void the_time_before_the_task_had_a_worker_does_not_count() {
    policy.replied(60_000 * MS, 60_030 * MS);
    policy.waited(30 * MS);
    assertTrue(policy.isDue(0, 60_060 * MS));
  }

  @Test
  void a_function_that_becomes_slow_is_noticed_within_seconds() {
    policy.replied(0, 10 * MS);
    long now = 3_600_000 * MS;
    assertFalse(policy.isDue(0, now));
    for (int replies = 0; replies < 40 && !policy.isDue(0, now); replies++) {
      now += 100 * MS;
      policy.waited(100 * MS);
    }
    assertTrue(policy.isDue(0, now));
  }

  @Test
  void a_wait_of_a_few_milliseconds_is_not_worth_a_helper() {
    policy.replied(0, MS);
    policy.waited(19 * MS);
    assertFalse(policy.isDue(0, 20 * MS));
    policy.waited(MS);
    assertTrue(policy.isDue(0, 21 * MS));
  }

  @Test
  void a_task_that_is_busy_itself_asks_for_no_helper() {
    policy.replied(0, 10 * MS);
    policy.waited(99 * MS);
    assertFalse(policy.isDue(0, 210 * MS));
    policy.waited(MS);
    assertTrue(policy.isDue(0, 210 * MS));
  }

  @Test
  void each_helper_has_to_be_worth_its_start() {
    policy.replied(0, 10 * MS);
    policy.waited(100 * MS);
    policy.asked(110 * MS);
    assertFalse(policy.isDue(1, 110 * MS));
    policy.waited(20 * MS);
    assertTrue(policy.isDue(1, 130 * MS));
    assertFalse(policy.isDue(MOST, 130 * MS));
  }

  @Test
  void a_helper_whose_shift_has_ended_is_followed_at_once_if_the_task_still_waits() {
    policy.replied(0, 10 * MS);
    policy.waited(20 * MS);
    policy.asked(30 * MS);
    policy.shiftEnded();
    policy.waited(5 * MS);
    assertFalse(policy.isDue(0, 50 * MS));
    policy.waited(5 * MS);
    assertTrue(policy.isDue(0, 50 * MS));
  }

  @Test
  void pauses_grow_while_the_pool_is_busy_and_a_shift_resets_them() {
    policy.replied(0, 10 * MS);
    long now = 10 * MS;
    List<Long> pauses = new ArrayList<>();
    for (int refusals = 0; refusals < 7; refusals++) {
      pauses.add(pauseAfterRefusal(now));
      now += 10_000 * MS;
    }
    assertEquals(List.of(250L, 500L, 1000L, 2000L, 4000L, 4000L, 4000L), pauses);
    policy.shiftEnded();
    assertEquals(250, pauseAfterRefusal(now));
  }

  /** Return how long a task that always waits asks for no helper after a refusal. */
  private long pauseAfterRefusal(long now) {
    policy.busy(now);
    policy.waited(20_000 * MS);
    long milliseconds = 0;
    while (!policy.isDue(0, now + milliseconds * MS)) {
      milliseconds++;
    }
    policy.asked(now + milliseconds * MS);
    return milliseconds;
  }

  @Test
  void a_task_that_was_refused_for_another_reason_asks_no_more() {
    policy.replied(0, 10 * MS);
    policy.stop();
    policy.waited(60_000 * MS);
    assertFalse(policy.isDue(0, 60_000 * MS));
  }
}
