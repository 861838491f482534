// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import com.google.protobuf.ByteString;
import io.grpc.Metadata;
import io.grpc.Status;
import io.updraft.proto.v1.Report;
import java.util.List;
import java.util.OptionalLong;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * An exchange as a state machine: what the task asks of it, what its calls report, what follows. It
 * calls nothing of gRPC, waits for nothing and locks nothing; {@link ExchangeState} does.
 */
final class ExchangeCore {
  /** How far the exchange is. */
  private enum Phase {
    /** A call is open. */
    RUNNING,
    /** There is no call, or it was lost; the next begins at a set time. */
    BACKING_OFF,
    /** The pool finished and the numbers agree. */
    FINISHED,
    /** Nothing can be done. */
    FAILED,
    /** The task has closed it. */
    CLOSED
  }

  /**
   * A message to send.
   *
   * @param batch null for the last message, which says that every batch was sent
   */
  record Step(RequestBatch batch) {}

  /** A wait without a set end looks up at least so often. */
  private static final long LONGEST_WAIT_NANOS = TimeUnit.SECONDS.toNanos(60);

  private final ClientOptions options;
  private final RequestLog log;
  private final ReplyQueue replies = new ReplyQueue();
  private final Recovery recovery;

  private Phase phase = Phase.BACKING_OFF;
  private Attempt attempt;
  private Failure failure;
  private Failure inBand;
  private List<ByteString> wanted;
  private boolean functionWanted;

  /** Whether the current call takes batches: it has what the pool asked for before them. */
  private boolean open;

  /** Whether the exchange has its worker in the current call. */
  private boolean admitted;

  /** Bytes that the current call has sent before that. */
  private long earlyBytes;

  /** Whether the current call was given a batch, or the message that says there is none. */
  private boolean handedOver;

  /** Since when nothing but the pool keeps the current call from going on. */
  private long openedNanos;

  private boolean finishSent;
  private long againNanos;
  private long progressNanos;
  private boolean workDone;
  private boolean sendingFinished;
  private boolean roomWanted;
  private Schema resultSchema;
  private Report report;
  private long bytesReceived;

  ExchangeCore(ClientOptions options, Replay replay, long nowNanos) {
    this.options = options;
    this.log = new RequestLog(options.windowBatches(), options.windowBytes(), replay);
    this.recovery = new Recovery(options, RetryBudget.of(options.endpoint()), nowNanos);
    this.againNanos = nowNanos;
    this.progressNanos = nowNanos;
  }

  Schema resultSchema() {
    return resultSchema;
  }

  Report report() {
    if (report == null) {
      throw new IllegalStateException("the exchange has not ended");
    }
    return report;
  }

  long bytesReceived() {
    return bytesReceived;
  }

  /** Number of the batch before the first that a new call would send. */
  long base() {
    return log.oneToOne() ? log.answered() : 0;
  }

  boolean isRecoveryDue(long nowNanos) {
    return phase == Phase.BACKING_OFF && againNanos - nowNanos <= 0;
  }

  /** Whether a call is open. */
  boolean isRunning() {
    return phase == Phase.RUNNING;
  }

  /** Whether the pool has asked for the deferred function. */
  boolean isFunctionWanted() {
    return functionWanted;
  }

  /** What the pool has asked for since this was last called; null: nothing yet. */
  List<ByteString> takeWanted() {
    List<ByteString> asked = wanted;
    wanted = null;
    return asked;
  }

  /** A new call takes over; false when the exchange is over. */
  boolean begin(Attempt next) {
    if (phase != Phase.BACKING_OFF) {
      return false;
    }
    attempt = next;
    wanted = null;
    functionWanted = false;
    open = false;
    admitted = false;
    earlyBytes = 0;
    handedOver = false;
    finishSent = false;
    phase = Phase.RUNNING;
    log.restart();
    return true;
  }

  /** A call has sent its command, and what the pool asked for: batches may follow. */
  void opened(Attempt call, long commandBytes, long nowNanos) {
    if (isCurrent(call)) {
      open = true;
      openedNanos = nowNanos;
      earlyBytes = commandBytes;
    }
  }

  /** What the current call is to send next; null when it has to wait. */
  Step nextToSend() {
    if (phase != Phase.RUNNING || !open) {
      return null;
    }
    RequestBatch batch = log.untransmitted();
    if (batch != null) {
      if (!admitted && !mayPrecedeAdmission(batch)) {
        return null;
      }
      earlyBytes += batch.bodyBytes();
      log.transmit();
      handedOver = true;
      return new Step(batch);
    }
    if (sendingFinished && !finishSent) {
      finishSent = true;
      handedOver = true;
      return new Step(null);
    }
    return null;
  }

  /**
   * Little goes out early, and nothing that could not be sent again: a pool that dies with the
   * exchange in its queue takes no batch with it.
   */
  private boolean mayPrecedeAdmission(RequestBatch batch) {
    return log.oneToOne() && earlyBytes + batch.bodyBytes() <= Exchange.BYTES_BEFORE_ADMISSION;
  }

  boolean hasRoom() {
    boolean room = phase == Phase.FINISHED || phase == Phase.FAILED || log.hasRoom();
    roomWanted = !room;
    return room;
  }

  /** Takes a batch into the log; false when there is no call. */
  boolean admit(RequestBatch batch) {
    switch (phase) {
      case FAILED -> throw failure.toException();
      case CLOSED -> throw new IllegalStateException("the exchange is closed");
      case FINISHED -> batch.close();
      case RUNNING, BACKING_OFF -> add(batch);
    }
    return phase == Phase.RUNNING;
  }

  private void add(RequestBatch batch) {
    if (sendingFinished || !log.hasRoom()) {
      throw new IllegalStateException(
          sendingFinished ? "the sending was finished" : "the window has no room");
    }
    log.add(batch);
    roomWanted = !log.hasRoom();
  }

  void finishSending() {
    sendingFinished = true;
  }

  /** The next reply or the end; null when there is none yet. */
  ReplyQueue.Entry next() {
    if (phase == Phase.CLOSED) {
      throw new IllegalStateException("the exchange is closed");
    }
    ReplyQueue.Entry entry = replies.poll();
    if (entry == null && phase == Phase.FAILED) {
      throw failure.toException();
    }
    if (entry == null && phase == Phase.FINISHED) {
      return new ReplyQueue.Entry(Reply.END, null);
    }
    return entry;
  }

  /** Whether a window that was full has opened; says so once. */
  boolean roomOpened() {
    boolean opened = roomWanted && !sendingFinished && log.hasRoom();
    roomWanted &= !opened;
    return opened;
  }

  /** How long may be waited until something is to be done or is too late. */
  long restNanos(long waitingSinceNanos, long nowNanos) {
    if (phase == Phase.BACKING_OFF) {
      return againNanos - nowNanos;
    }
    if (!attempt.connected()) {
      return options.connectTimeout().toNanos() - (nowNanos - attempt.startedNanos());
    }
    if (options.replyTimeout().isZero()) {
      return LONGEST_WAIT_NANOS;
    }
    long idleNanos = nowNanos - Math.max(waitingSinceNanos, progressNanos);
    return options.replyTimeout().toNanos() - idleNanos;
  }

  /** A wait came to its end with nothing to show. */
  void expire(long nowNanos) {
    if (phase == Phase.RUNNING && !attempt.connected()) {
      lose(Failure.unconnected(options.endpoint()), OptionalLong.empty(), nowNanos);
    } else if (phase == Phase.RUNNING && !options.replyTimeout().isZero()) {
      double seconds = options.replyTimeout().toMillis() / 1000.0;
      fail(
          Failure.deadline(
              "the pool at %s showed no progress for %s s".formatted(options.endpoint(), seconds)));
    }
  }

  /** Fails the exchange; returns the call to cancel, or null. */
  Attempt cancel(String reason) {
    if (phase != Phase.RUNNING && phase != Phase.BACKING_OFF) {
      return null;
    }
    replies.close();
    fail(Failure.cancelled(reason));
    return attempt;
  }

  /** Releases what is held; nothing is taken in any more. */
  void close() {
    phase = Phase.CLOSED;
    replies.close();
    log.close();
  }

  /** A message of a call, in order. */
  void onEvent(Attempt from, ReplyEvent event, int sizeBytes, long nowNanos)
      throws MalformedReplyException {
    bytesReceived += sizeBytes;
    progressNanos = nowNanos;
    if (!isCurrent(from)) {
      drop(event);
      return;
    }
    workDone |= isWork(event);
    if (from.consumed() > 0) {
      log.consumedThrough(from.base() + from.consumed());
    }
    if (event instanceof ReplyEvent.Batch batch) {
      takeBatch(from, batch);
    } else if (event instanceof ReplyEvent.ContentsWanted contents) {
      wanted = contents.digests();
    } else if (event instanceof ReplyEvent.FunctionWanted) {
      functionWanted = true;
    } else if (event instanceof ReplyEvent.Admitted) {
      admitted = true;
    } else if (event instanceof ReplyEvent.Logged logged) {
      replies.add(Reply.logged(logged.lines()), from);
    } else if (event instanceof ReplyEvent.SchemaKnown known) {
      takeSchema(known.schema());
    } else if (event instanceof ReplyEvent.Finished finished) {
      takeFinish(finished.report());
    } else if (event instanceof ReplyEvent.Failed failed) {
      takeError(Failure.inBand(failed.error()), nowNanos);
    }
  }

  /** Whether a message shows that the function may have seen a batch. */
  private static boolean isWork(ReplyEvent event) {
    return !(event instanceof ReplyEvent.Failed
        || event instanceof ReplyEvent.FunctionWanted
        || event instanceof ReplyEvent.ContentsWanted
        || event instanceof ReplyEvent.Admitted);
  }

  private boolean isCurrent(Attempt from) {
    return from == attempt && phase == Phase.RUNNING;
  }

  private static void drop(ReplyEvent event) {
    if (event instanceof ReplyEvent.Batch dropped) {
      dropped.batch().close();
    }
  }

  private void takeBatch(Attempt from, ReplyEvent.Batch batch) throws MalformedReplyException {
    long number = batch.sequence();
    if (log.oneToOne()) {
      number += from.base();
      try {
        log.answeredNext(batch.batch().getLength());
      } catch (MalformedReplyException e) {
        drop(batch);
        throw e;
      }
      recovery.progressed();
    }
    replies.add(Reply.batch(number, batch.batch(), batch.rowEnds()), from);
  }

  private void takeSchema(Schema schema) throws MalformedReplyException {
    if (resultSchema != null && !resultSchema.equals(schema)) {
      throw new MalformedReplyException(
          "another worker gives results with another schema: " + schema + ", not " + resultSchema);
    }
    resultSchema = schema;
  }

  private void takeFinish(Report finished) throws MalformedReplyException {
    boolean answered = sendingFinished && log.answered() == log.sent();
    if (log.oneToOne() && !answered) {
      throw new MalformedReplyException(
          "the pool finished after %d of %d batches".formatted(log.answered(), log.sent()));
    }
    report = finished;
  }

  /** A full pool's status, which comes next, says when to come again; the others are final. */
  private void takeError(Failure error, long nowNanos) {
    inBand = error;
    if (!error.isWithoutRoom()) {
      lose(error, OptionalLong.empty(), nowNanos);
    }
  }

  /** A call broke the protocol, or cannot be read. */
  void onBroken(Attempt from, Failure broken, long nowNanos) {
    if (isCurrent(from)) {
      lose(broken, OptionalLong.empty(), nowNanos);
    }
  }

  /** A call ended with a status. */
  void onClosed(Attempt from, Status status, Metadata trailers, long nowNanos) {
    if (!isCurrent(from)) {
      return;
    }
    Failure reason = inBand != null ? inBand : Failure.ofStatus(status, options);
    boolean lost = reason.origin() == Failure.Origin.CONNECTION;
    // All results are here and counted: a connection that breaks now has nothing to take away.
    if (from.state() == ReplyProtocol.State.FINISHED && lost) {
      phase = Phase.FINISHED;
    } else {
      lose(reason, Failure.retryAfterMilliseconds(trailers), nowNanos);
    }
  }

  /** The call is lost: recover or fail. */
  private void lose(Failure reason, OptionalLong hint, long nowNanos) {
    // What was never given a batch has done no work: it waited for a worker, or for its input.
    boolean lostOnTheWire =
        reason.origin() == Failure.Origin.CONNECTION && attempt.connected() && handedOver;
    if (open && attempt.connected()) {
      recovery.waited(nowNanos - openedNanos);
    }
    Recovery.Progress progress =
        new Recovery.Progress(
            workDone || lostOnTheWire,
            attempt.base(),
            startedBatch(),
            log.replayable(),
            attempt.reach());
    Recovery.Decision decision = recovery.decide(reason, progress, hint, nowNanos);
    if (decision instanceof Recovery.Decision.Again again) {
      phase = Phase.BACKING_OFF;
      againNanos = nowNanos + again.pause().toNanos();
      workDone = false;
      inBand = null;
    } else if (decision instanceof Recovery.Decision.GiveUp last) {
      fail(last.failure());
    }
  }

  /** A worker that gave no sign since its first batch was sent may have died before it saw that. */
  private long startedBatch() {
    boolean sign = attempt.consumed() > 0 || log.answered() > attempt.base();
    return sign && log.answered() < log.sent() ? log.answered() + 1 : 0;
  }

  private void fail(Failure reason) {
    phase = Phase.FAILED;
    failure = reason;
  }
}
