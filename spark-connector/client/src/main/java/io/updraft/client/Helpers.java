// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import java.util.ArrayDeque;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.Consumer;
import java.util.function.ToLongFunction;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Helpers of one task. Opens helpers when {@link HelperPolicy} allows it, and removes helpers that
 * have ended or failed. Used by the task's thread; only {@link #cancel} may be called from any
 * thread.
 */
final class Helpers implements AutoCloseable {
  private static final Logger log = LoggerFactory.getLogger(Helpers.class);

  private final Exchange main;
  private final Consumer<Exchange> listener;
  private final HelperPolicy policy;
  private final HelperTotals totals = new HelperTotals();
  private final List<Helper> all = new CopyOnWriteArrayList<>();

  /** Log lines that helpers sent after their last batch. */
  private final ArrayDeque<Reply> logs = new ArrayDeque<>();

  private volatile String cancelled;

  /**
   * Create an empty set of helpers.
   *
   * @param main the exchange that the helpers support
   * @param listener called after each message that an exchange receives; for the main exchange,
   *     from the first helper on
   */
  Helpers(Exchange main, Consumer<Exchange> listener) {
    this.main = main;
    this.listener = listener;
    this.policy = new HelperPolicy(main.options.maxHelpers());
  }

  boolean isEmpty() {
    return all.isEmpty();
  }

  List<Helper> all() {
    return all;
  }

  HelperPolicy policy() {
    return policy;
  }

  HelperTotals totals() {
    return totals;
  }

  /** Return a helper that has taken a batch, or null. */
  Helper worked() {
    for (Helper helper : all) {
      if (helper.hasWorked()) {
        return helper;
      }
    }
    return null;
  }

  /** Return how many helpers have taken a batch, including ended helpers. */
  long count() {
    return totals.helpers() + all.stream().filter(Helper::hasWorked).count();
  }

  /** Return the sum of a value over the helpers that have not ended. */
  long sum(ToLongFunction<Exchange> value) {
    return all.stream().mapToLong(helper -> value.applyAsLong(helper.exchange)).sum();
  }

  /** Return log lines that helpers sent after their last batch; null if there are none. */
  Reply log() {
    return logs.poll();
  }

  /** Stop all helpers from accepting batches. */
  void leave() {
    for (Helper helper : all) {
      if (helper.stage() == Helper.Stage.ASKED) {
        remove(helper);
      } else {
        helper.leave();
      }
    }
  }

  /** Remove helpers that have ended or failed, and open another one if that is allowed and due. */
  void tend(boolean mayOpen, long nowNanos) {
    boolean allAnswer = true;
    for (Helper helper : all) {
      ExchangeException failure = helper.exchange.failure();
      if (failure != null && helper.isHarmless(failure)) {
        failed(helper, failure, nowNanos);
        continue;
      }
      helper.exchange.recoverIfDue();
      if (helper.stage() == Helper.Stage.LEAVING && helper.unanswered() == 0) {
        collect(helper);
      }
      allAnswer &= helper.hasAnswered();
    }
    if (!all.isEmpty()) {
      main.recoverIfDue();
    }
    // Open one helper at a time: a new helper's worker may have to load the function, and the task
    // waits for the helper's first reply.
    if (mayOpen && allAnswer && policy.isDue(all.size(), nowNanos)) {
      policy.asked(nowNanos);
      open(new Helper(main.newHelper()), nowNanos);
    }
  }

  private void failed(Helper helper, ExchangeException failure, long nowNanos) {
    if (Helper.isBusy(failure)) {
      policy.busy(nowNanos);
    } else if (!helper.hasWorked()) {
      log.info("asking for no more helpers for this task: {}", failure.getMessage());
      policy.stop();
    }
    remove(helper);
  }

  private void open(Helper helper, long nowNanos) {
    // Add the helper before opening it, so that {@link #cancel} also cancels this helper. Opening
    // may block until the pool asks for the function.
    all.add(helper);
    main.listener = () -> listener.accept(main);
    helper.exchange.listener = () -> listener.accept(helper.exchange);
    try {
      if (cancelled == null) {
        helper.start();
      } else {
        helper.exchange.cancel(cancelled);
      }
    } catch (ExchangeException e) {
      failed(helper, e, nowNanos);
    } catch (IllegalArgumentException e) {
      // The token or certificate files cannot be read now. The main exchange is already open and
      // does not need them.
      policy.busy(nowNanos);
      remove(helper);
    }
  }

  /** Take the log lines and the end that a helper sends after its last batch. */
  private void collect(Helper helper) {
    try {
      for (Reply reply = helper.exchange.poll(); reply != null; reply = helper.exchange.poll()) {
        if (reply.kind() == Reply.Kind.LOG) {
          logs.add(reply);
        } else if (reply.kind() == Reply.Kind.END) {
          ended(helper);
          return;
        }
      }
    } catch (ExchangeException e) {
      forgive(helper, e);
    }
  }

  /** Remove a helper that has failed. Rethrow the failure unless it is harmless for the task. */
  void forgive(Helper helper, ExchangeException failure) {
    if (helper == null || !helper.isHarmless(failure)) {
      throw failure;
    }
    remove(helper);
  }

  /** Remove a helper that has sent its report. */
  void ended(Helper helper) {
    totals.add(helper.exchange.report());
    remove(helper);
    policy.shiftEnded();
  }

  void remove(Helper helper) {
    all.remove(helper);
    totals.add(helper);
    helper.close();
  }

  /** Cancel all present and future helpers; callable from any thread. */
  void cancel(String reason) {
    cancelled = reason;
    all.forEach(helper -> helper.exchange.cancel(reason));
  }

  @Override
  public void close() {
    all.forEach(this::remove);
  }
}
