// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.updraft.proto.v1.ErrorKind;
import io.updraft.proto.v1.ExchangeCommand;
import io.updraft.proto.v1.Report;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.ToLongFunction;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * Exchange of one task, with helpers. A helper is another exchange for the same function. A task
 * that mostly waits for its function opens helpers while the pool has idle workers, and gives each
 * a share of its batches. So a stage with few tasks, or its slowest task, uses the whole pool.
 * Replies still come in the order of their batches. Only functions with {@link Replay#REPLAY} have
 * helpers, because their batches may go to any worker.
 *
 * <p>Used by one task thread; only {@link #cancel} may be called from any thread.
 */
public final class TaskExchange implements AutoCloseable {
  private final ClientOptions options;
  private final boolean mayHaveHelpers;
  private final HelperPolicy policy;
  private final Exchange main;
  private final List<Helper> helpers = new CopyOnWriteArrayList<>();

  /** Batches without a reply, oldest first; empty for functions that may not have helpers. */
  private final ArrayDeque<Unanswered> unanswered = new ArrayDeque<>();

  private long unansweredBytes;
  private long answered;
  private boolean sendingFinished;

  /** Reports of helpers that have ended. */
  private final List<Report> reports = new ArrayList<>();

  /** Log lines that helpers sent after their last batch. */
  private final ArrayDeque<Reply> logs = new ArrayDeque<>();

  private final Totals totals = new Totals();
  private volatile String cancelled;

  /**
   * Batch on its way.
   *
   * @param helper the helper that has the batch; null if the main exchange has it
   */
  private record Unanswered(Helper helper, long bytes) {}

  private TaskExchange(ClientOptions options, Exchange main, Replay replay) {
    this.options = options;
    this.main = main;
    this.mayHaveHelpers = replay == Replay.REPLAY;
    this.policy = new HelperPolicy(System.nanoTime());
  }

  /** Open the exchange of a task; see {@link Exchange#open}. */
  public static TaskExchange open(
      ClientOptions options,
      ExchangeCommand command,
      Schema schema,
      BufferAllocator allocator,
      Replay replay,
      Collection<? extends Artifact> artifacts) {
    Exchange main = Exchange.open(options, command, schema, allocator, replay, artifacts);
    return new TaskExchange(options, main, replay);
  }

  /** Return whether a window has room for one more batch. */
  public boolean hasRoom() {
    return helpers.isEmpty() ? main.hasRoom() : main.hasRoom() && sharesRoom() || helper() != null;
  }

  /**
   * Send a batch and take it over; see {@link Exchange#send(ArrowRecordBatch, int, BatchGroups)}.
   *
   * @throws ExchangeException if the exchange already failed, or the batch is larger than {@link
   *     ClientOptions#maxBatchBytes}
   * @throws IllegalStateException if no window has room, or if {@link #finishSending} was called
   */
  public void send(ArrowRecordBatch batch, int rows, BatchGroups groups) {
    long bytes = batch.computeBodyLength();
    Helper helper = helper();
    if (helper == null) {
      main.send(batch, rows, groups);
    } else {
      helper.exchange.send(batch, rows, groups);
      helper.sent();
    }
    if (mayHaveHelpers) {
      unanswered.add(new Unanswered(helper, bytes));
      unansweredBytes += bytes;
    }
  }

  /** Return the helper that takes the next batch; null if the main exchange takes it. */
  private Helper helper() {
    int ofMain = unanswered.size();
    Helper best = null;
    for (Helper helper : helpers) {
      ofMain -= helper.unanswered();
      if (helper.takesBatch() && (best == null || helper.unanswered() < best.unanswered())) {
        best = helper;
      }
    }
    if (best == null || (best.unanswered() > 0 && !sharesRoom())) {
      return null;
    }
    return ofMain <= best.unanswered() && main.hasRoom() ? null : best;
  }

  /** Return whether the bytes of all exchanges fit in one window. */
  private boolean sharesRoom() {
    return unansweredBytes < options.windowBytes();
  }

  /** Announce that every batch was sent. Idempotent. */
  public void finishSending() {
    sendingFinished = true;
    main.finishSending();
    for (Helper helper : helpers) {
      if (helper.hasWorked()) {
        helper.leave();
      } else {
        remove(helper);
      }
    }
  }

  /**
   * Return the next batch of results, log lines or the end; null if none has arrived yet.
   *
   * @throws ExchangeException if the exchange failed and all earlier replies were returned
   */
  public Reply poll() {
    if (mayHaveHelpers) {
      tendHelpers(System.nanoTime());
    }
    if (!logs.isEmpty()) {
      return logs.poll();
    }
    Helper helper = nextHelper();
    Reply reply = (helper == null ? main : helper.exchange).poll();
    return reply == null ? null : taken(reply, helper);
  }

  /**
   * Wait for the next report and return it: a batch of results, log lines, the end, or {@link
   * Reply#ROOM}, which means that a full window has room again.
   *
   * @throws ExchangeException if the exchange failed and all earlier replies were returned
   * @throws InterruptedException if the thread was interrupted; the caller still has to close the
   *     exchange
   */
  public Reply take() throws InterruptedException {
    Reply reply = poll();
    while (reply == null) {
      Helper helper = nextHelper();
      long beganNanos = System.nanoTime();
      Reply found = (helper == null ? main : helper.exchange).take();
      policy.waited(System.nanoTime() - beganNanos);
      reply = taken(found, helper);
    }
    return reply;
  }

  /** Return the helper whose reply comes next; null if it comes from the main exchange. */
  private Helper nextHelper() {
    if (!unanswered.isEmpty()) {
      return unanswered.peek().helper();
    }
    return sendingFinished && !helpers.isEmpty() ? helpers.get(0) : null;
  }

  /** Return the reply as this exchange's own; null if it only ends a helper. */
  private Reply taken(Reply reply, Helper helper) {
    if (reply.kind() == Reply.Kind.BATCH && mayHaveHelpers) {
      return inOrder(reply, helper);
    }
    if (reply.kind() == Reply.Kind.END && helper != null) {
      ended(helper);
      return null;
    }
    return reply;
  }

  private Reply inOrder(Reply reply, Helper helper) {
    policy.replied(System.nanoTime());
    unansweredBytes -= unanswered.remove().bytes();
    answered++;
    if (helper != null) {
      helper.answered();
      if (!helper.exchange.resultSchema().equals(main.resultSchema())) {
        reply.batch().close();
        throw Failure.malformed("another worker returned a different schema", null).toException();
      }
    }
    return reply.sequence() == answered
        ? reply
        : Reply.batch(answered, reply.batch(), reply.rowEnds());
  }

  /** Look after the helpers, and ask for another one if that is due. */
  private void tendHelpers(long nowNanos) {
    for (Helper helper : helpers) {
      ExchangeException failure = helper.failureWithoutWork();
      if (failure != null) {
        policy.refused(failure.kind() == ErrorKind.ERROR_KIND_POOL_BUSY, nowNanos);
        remove(helper);
        continue;
      }
      helper.advance(nowNanos);
      if (helper.isDone()) {
        collect(helper);
      }
    }
    if (!sendingFinished && policy.isDue(helpers.size(), nowNanos)) {
      policy.asked(nowNanos);
      openHelper();
    }
  }

  private void openHelper() {
    try {
      helpers.add(new Helper(main.openHelper()));
    } catch (ExchangeException e) {
      // An artifact cannot be read any more. The main exchange has its function already.
      policy.refused(false, System.nanoTime());
    }
    String reason = cancelled;
    if (reason != null) {
      cancel(reason);
    }
  }

  /** Take what a helper sends after its last batch. */
  private void collect(Helper helper) {
    for (Reply reply = helper.exchange.poll(); reply != null; reply = helper.exchange.poll()) {
      if (reply.kind() == Reply.Kind.LOG) {
        logs.add(reply);
      } else if (reply.kind() == Reply.Kind.END) {
        ended(helper);
        return;
      }
    }
  }

  private void ended(Helper helper) {
    reports.add(helper.exchange.report());
    remove(helper);
    policy.shiftEnded();
  }

  private void remove(Helper helper) {
    helpers.remove(helper);
    totals.add(helper);
    helper.exchange.close();
  }

  /** Return the schema of the results; null until the pool has sent it. */
  public Schema resultSchema() {
    return main.resultSchema();
  }

  /**
   * Return the measurements of each worker that the task had.
   *
   * @throws IllegalStateException if called before {@link Reply.Kind#END}
   */
  public List<Report> reports() {
    List<Report> all = new ArrayList<>(reports);
    all.add(main.report());
    return all;
  }

  /** Return how many helpers had a worker. */
  public long helpers() {
    return totals.helpers + helpers.stream().filter(Helper::hasWorked).count();
  }

  /** Return the bytes of request messages, including messages that were sent again. */
  public long bytesSent() {
    return totals.bytesSent + sum(Exchange::bytesSent);
  }

  /** Return the bytes, sent or received, that passed through shared memory. */
  public long sharedBytes() {
    return totals.sharedBytes + sum(Exchange::sharedBytes);
  }

  /** Return the bytes of reply messages. */
  public long bytesReceived() {
    return totals.bytesReceived + sum(Exchange::bytesReceived);
  }

  /** Return how many times batches moved to another worker; see {@link Exchange#replays}. */
  public long replays() {
    return totals.replays + sum(Exchange::replays);
  }

  private long sum(ToLongFunction<Exchange> value) {
    long ofHelpers = helpers.stream().mapToLong(each -> value.applyAsLong(each.exchange)).sum();
    return value.applyAsLong(main) + ofHelpers;
  }

  /**
   * End the exchange. A waiting task thread wakes with the reason. Idempotent, callable from any
   * thread.
   */
  public void cancel(String reason) {
    cancelled = reason;
    main.cancel(reason);
    helpers.forEach(helper -> helper.exchange.cancel(reason));
  }

  /** Cancel whatever has not finished and release everything. Idempotent. */
  @Override
  public void close() {
    helpers.forEach(this::remove);
    main.close();
  }

  /** Totals of helpers that were removed. */
  private static final class Totals {
    private long helpers;
    private long bytesSent;
    private long sharedBytes;
    private long bytesReceived;
    private long replays;

    void add(Helper helper) {
      helpers += helper.hasWorked() ? 1 : 0;
      bytesSent += helper.exchange.bytesSent();
      sharedBytes += helper.exchange.sharedBytes();
      bytesReceived += helper.exchange.bytesReceived();
      replays += helper.exchange.replays();
    }
  }
}
