// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.updraft.proto.v1.Report;
import java.util.ArrayDeque;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * Exchange of one task, with helpers. A helper is another exchange for the same function. If a task
 * mostly waits for its function and the pool has idle workers, the task opens helpers and sends
 * each helper a share of its batches. In this way, a task can use several workers. Replies still
 * come in the order of their batches. Only functions with {@link Replay#REPLAY} have helpers,
 * because their batches may go to any worker.
 *
 * <p>Used by one task thread; only {@link #cancel} may be called from any thread.
 */
public final class TaskExchange implements AutoCloseable {
  private final ClientOptions options;
  private final boolean mayHaveHelpers;
  private final Exchange main;
  private final Helpers helpers;

  /**
   * Batches whose replies the task has not taken, oldest first; empty if the task must not have
   * helpers.
   */
  private final ArrayDeque<Unanswered> unanswered = new ArrayDeque<>();

  /**
   * Sum over the unanswered batches: for each, the bytes of the batch or of its expected reply,
   * whichever is larger.
   */
  private long unansweredBytes;

  private long lastReplyBytes;
  private long answered;
  private boolean sendingFinished;

  /** Exchange that the task's thread waits for; null while it does not wait. */
  private volatile Exchange awaited;

  /** True if an exchange other than the awaited exchange may accept a batch now. */
  private volatile boolean hasNews;

  /**
   * Batch whose reply the task has not taken.
   *
   * @param helper the helper that has the batch; null if the main exchange has it
   */
  private record Unanswered(Helper helper, long bytes) {}

  /**
   * Create the exchange of a task. Closing it closes the main exchange, too.
   *
   * @param replay the policy with which the main exchange was opened
   */
  public TaskExchange(Exchange main, Replay replay) {
    this.options = main.options;
    this.main = main;
    this.mayHaveHelpers = replay == Replay.REPLAY && options.maxHelpers() > 0;
    this.helpers = new Helpers(main, this::wake);
  }

  /** Return whether a window has room for one more batch. */
  public boolean hasRoom() {
    if (helpers.isEmpty()) {
      return main.hasRoom();
    }
    return !isFailing() && (mainHasRoom(unansweredByMain()) || nextHelper() != null);
  }

  private boolean mainHasRoom(int unansweredByMain) {
    return main.hasRoom() && (unansweredByMain == 0 || sharesRoom());
  }

  private int unansweredByMain() {
    int ofMain = unanswered.size();
    for (Helper helper : helpers.all()) {
      ofMain -= helper.unanswered();
    }
    return ofMain;
  }

  /**
   * Return whether the main exchange has failed while the task still waits for replies to earlier
   * batches.
   */
  private boolean isFailing() {
    return !unanswered.isEmpty() && main.failure() != null;
  }

  /** Return whether the unanswered batches of all exchanges together leave room in one window. */
  private boolean sharesRoom() {
    return unansweredBytes < options.windowBytes();
  }

  /**
   * Send a batch and take it over; see {@link Exchange#send(ArrowRecordBatch, int, BatchGroups)}.
   *
   * @throws ExchangeException if the exchange already failed, or the batch is larger than {@link
   *     ClientOptions#maxBatchBytes}
   * @throws IllegalStateException if no window has room, or if {@link #finishSending} was called
   */
  public void send(ArrowRecordBatch batch, int rows, BatchGroups groups) {
    long bytes = Math.max(batch.computeBodyLength(), lastReplyBytes);
    Helper helper = nextHelper();
    if (helper == null || !helper.send(batch, rows, groups)) {
      helper = null;
      if (helpers.isEmpty()) {
        main.send(batch, rows, groups);
      } else if (isFailing()) {
        // The main exchange has failed. Drop the batch without an error: the task first takes the
        // replies to earlier batches, and then it fails.
        batch.close();
        return;
      } else {
        // hasRoom may have counted the room of a helper that has stopped accepting batches since.
        main.admit(batch, rows, groups, main.core::admitBeyondWindow);
      }
    }
    if (mayHaveHelpers) {
      unanswered.add(new Unanswered(helper, bytes));
      unansweredBytes += bytes;
    }
  }

  /** Return the helper that takes the next batch; null if the main exchange takes it. */
  private Helper nextHelper() {
    Helper best = null;
    for (Helper helper : helpers.all()) {
      if ((best == null || helper.unanswered() < best.unanswered()) && helper.takesBatch()) {
        best = helper;
      }
    }
    if (best == null || (best.unanswered() > 0 && !sharesRoom())) {
      return null;
    }
    int ofMain = unansweredByMain();
    return ofMain <= best.unanswered() && mainHasRoom(ofMain) ? null : best;
  }

  /** Announce that every batch was sent. Idempotent. */
  public void finishSending() {
    sendingFinished = true;
    main.finishSending();
    helpers.leave();
  }

  /**
   * Return the next batch of results, log lines or the end; null if none has arrived yet.
   *
   * @throws ExchangeException if the exchange failed and all earlier replies were returned
   */
  public Reply poll() {
    if (mayHaveHelpers) {
      helpers.tend(!sendingFinished, System.nanoTime());
    }
    Reply lines = helpers.log();
    if (lines != null) {
      return lines;
    }
    Helper helper = awaitedHelper();
    try {
      Reply reply = exchangeOf(helper).poll();
      return reply == null ? null : taken(reply, helper);
    } catch (ExchangeException e) {
      helpers.forgive(helper, e);
      return null;
    }
  }

  /**
   * Wait for the next report and return it: a batch of results, log lines, the end, or {@link
   * Reply#ROOM}, which means that a full window may have room again.
   *
   * @throws ExchangeException if the exchange failed and all earlier replies were returned
   * @throws InterruptedException if the thread was interrupted; the caller still has to close the
   *     exchange
   */
  public Reply take() throws InterruptedException {
    Reply reply = poll();
    while (reply == null) {
      Helper helper = awaitedHelper();
      long beganNanos = System.nanoTime();
      try {
        reply = taken(await(exchangeOf(helper)), helper);
      } catch (ExchangeException e) {
        helpers.forgive(helper, e);
      } finally {
        // Do not count this wait if the helper may still be loading the function.
        if (helper == null || helper.hasAnswered()) {
          helpers.policy().waited(System.nanoTime() - beganNanos);
        }
      }
    }
    return reply;
  }

  private Reply await(Exchange exchange) throws InterruptedException {
    awaited = exchange;
    try {
      return hasNews ? Reply.ROOM : exchange.take();
    } finally {
      awaited = null;
      hasNews = false;
    }
  }

  /** Wake the task's thread if an exchange other than the awaited exchange may accept a batch. */
  private void wake(Exchange from) {
    Exchange waitsFor = awaited;
    if (waitsFor != from) {
      hasNews = true;
      waitsFor = awaited;
      if (waitsFor != null) {
        waitsFor.locked(waitsFor.core::reportRoom);
      }
    }
  }

  private Exchange exchangeOf(Helper helper) {
    return helper == null ? main : helper.exchange;
  }

  /** Return the helper that sends the next reply; null if the main exchange does. */
  private Helper awaitedHelper() {
    if (!unanswered.isEmpty()) {
      return unanswered.peek().helper();
    }
    return sendingFinished ? helpers.worked() : null;
  }

  /** Return the reply numbered in the task's order; null if the reply is the end of a helper. */
  private Reply taken(Reply reply, Helper helper) {
    if (reply.kind() == Reply.Kind.BATCH && mayHaveHelpers) {
      return inOrder(reply, helper);
    }
    if (reply.kind() == Reply.Kind.END && helper != null) {
      helpers.ended(helper);
      return null;
    }
    return reply;
  }

  private Reply inOrder(Reply reply, Helper helper) {
    helpers.policy().replied(main.read(main.core::admittedNanos), System.nanoTime());
    unansweredBytes -= unanswered.remove().bytes();
    lastReplyBytes = reply.batch().computeBodyLength();
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

  /** Return the schema of the results; null until the pool has sent it. */
  public Schema resultSchema() {
    return main.resultSchema();
  }

  /**
   * Return the sum of the measurements of all workers that served the task.
   *
   * @throws IllegalStateException if called before {@link Reply.Kind#END}
   */
  public Report report() {
    return helpers.totals().with(main.report());
  }

  /** Return how many workers are computing for the task now. */
  public int workers() {
    return 1 + (int) helpers.all().stream().filter(Helper::hasAnswered).count();
  }

  /** Return how many helpers worked for the task. */
  public long helpers() {
    return helpers.count();
  }

  /** Return the number of bytes in request messages, including messages that were sent again. */
  public long bytesSent() {
    return main.bytesSent() + helpers.totals().bytesSent() + helpers.sum(Exchange::bytesSent);
  }

  /** Return the number of bytes sent or received through shared memory. */
  public long sharedBytes() {
    return main.sharedBytes() + helpers.totals().sharedBytes() + helpers.sum(Exchange::sharedBytes);
  }

  /** Return the number of bytes in reply messages. */
  public long bytesReceived() {
    return main.bytesReceived()
        + helpers.totals().bytesReceived()
        + helpers.sum(Exchange::bytesReceived);
  }

  /** Return how many times batches moved to another worker; see {@link Exchange#replays}. */
  public long replays() {
    return main.replays() + helpers.totals().replays() + helpers.sum(Exchange::replays);
  }

  /**
   * End the exchange. If the task's thread is waiting, it fails with this reason. Idempotent,
   * callable from any thread.
   */
  public void cancel(String reason) {
    main.cancel(reason);
    helpers.cancel(reason);
  }

  /** Cancel every exchange that has not finished, and release everything. Idempotent. */
  @Override
  public void close() {
    helpers.close();
    main.close();
  }
}
