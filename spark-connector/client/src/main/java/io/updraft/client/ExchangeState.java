// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.grpc.Metadata;
import io.grpc.Status;
import io.updraft.proto.v1.ErrorKind;
import io.updraft.proto.v1.Report;
import java.util.Collection;
import java.util.OptionalLong;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * What the task thread and gRPC's event loop share of an exchange, under one lock, and the waits of
 * the task thread. It calls nothing of gRPC, so that no lock of gRPC's is ever taken under its own.
 */
final class ExchangeState implements Attempt.Owner {
  /** How far the exchange is. */
  enum Phase {
    /** A call is open. */
    RUNNING,
    /** The last call was lost; the next begins at a set time. */
    BACKING_OFF,
    /** The pool finished and the numbers agree. */
    FINISHED,
    /** Nothing can be done. */
    FAILED,
    /** The task has closed it. */
    CLOSED
  }

  /** A wait without a set end looks up at least so often. */
  private static final long LONGEST_WAIT_NANOS = TimeUnit.SECONDS.toNanos(60);

  private final ClientOptions options;
  private final ReentrantLock lock = new ReentrantLock();
  private final Condition changed = lock.newCondition();
  private final RequestLog log;
  private final ReplyQueue replies = new ReplyQueue();
  private final Recovery recovery;
  private final long openedNanos = System.nanoTime();

  private Phase phase = Phase.BACKING_OFF;
  private Attempt attempt;
  private Failure failure;
  private Failure inBand;
  private long againNanos = openedNanos;
  private long progressNanos = openedNanos;
  private boolean workDone;
  private boolean sendingFinished;
  private boolean roomWanted;
  private Schema resultSchema;
  private Report report;
  private long bytesReceived;

  ExchangeState(ClientOptions options, Replay replay) {
    this.options = options;
    this.log = new RequestLog(options.windowBatches(), options.windowBytes(), replay);
    this.recovery = new Recovery(options, openedNanos);
  }

  // The task thread's half.

  /** Number of the batch before the first that a new call would send. */
  long base() {
    lock.lock();
    try {
      return log.oneToOne() ? log.answered() : 0;
    } finally {
      lock.unlock();
    }
  }

  /** Until the exchange's deadline; zero when it has none. */
  long remainingNanos() {
    if (options.deadline().isZero()) {
      return 0;
    }
    return Math.max(1, options.deadline().toNanos() - (System.nanoTime() - openedNanos));
  }

  /** A new call takes over; null when the exchange is over, else the batches to send first. */
  Collection<RequestBatch> begin(Attempt next) {
    lock.lock();
    try {
      if (phase != Phase.BACKING_OFF) {
        return null;
      }
      attempt = next;
      phase = Phase.RUNNING;
      return log.restart();
    } finally {
      lock.unlock();
    }
  }

  boolean isRecoveryDue() {
    lock.lock();
    try {
      return recoveryDue();
    } finally {
      lock.unlock();
    }
  }

  private boolean recoveryDue() {
    return phase == Phase.BACKING_OFF && againNanos - System.nanoTime() <= 0;
  }

  boolean hasRoom() {
    lock.lock();
    try {
      boolean room = phase == Phase.FINISHED || phase == Phase.FAILED || log.hasRoom();
      roomWanted = !room;
      return room;
    } finally {
      lock.unlock();
    }
  }

  /** Takes a batch into the log; true when a call is open and wants it now. */
  boolean admit(RequestBatch batch) {
    lock.lock();
    try {
      switch (phase) {
        case FAILED -> throw failure.toException();
        case CLOSED -> throw new IllegalStateException("the exchange is closed");
        case FINISHED -> batch.close();
        case RUNNING, BACKING_OFF -> log(batch);
      }
      return phase == Phase.RUNNING;
    } finally {
      lock.unlock();
    }
  }

  private void log(RequestBatch batch) {
    if (sendingFinished || !log.hasRoom()) {
      throw new IllegalStateException(
          sendingFinished ? "the sending was finished" : "the window has no room");
    }
    log.add(batch);
    roomWanted = !log.hasRoom();
  }

  /** True when a call is open and has not been told. */
  boolean finishSending() {
    lock.lock();
    try {
      boolean tell = !sendingFinished && phase == Phase.RUNNING;
      sendingFinished = true;
      return tell;
    } finally {
      lock.unlock();
    }
  }

  boolean isSendingFinished() {
    lock.lock();
    try {
      return sendingFinished;
    } finally {
      lock.unlock();
    }
  }

  /** The next reply, or null when there is none. */
  ReplyQueue.Entry poll() {
    lock.lock();
    try {
      return next();
    } finally {
      lock.unlock();
    }
  }

  private ReplyQueue.Entry next() {
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

  /** Waits for a reply or for room; null when a new call is to be begun. */
  ReplyQueue.Entry awaitReply() throws InterruptedException {
    lock.lockInterruptibly();
    try {
      long waitingSinceNanos = System.nanoTime();
      while (true) {
        ReplyQueue.Entry entry = next();
        if (entry != null || recoveryDue()) {
          return entry;
        }
        if (roomWanted && !sendingFinished && log.hasRoom()) {
          roomWanted = false;
          return new ReplyQueue.Entry(Reply.ROOM, null);
        }
        long restNanos = restNanos(waitingSinceNanos);
        if (restNanos > 0) {
          changed.awaitNanos(restNanos);
        } else {
          expire();
        }
      }
    } finally {
      lock.unlock();
    }
  }

  /** How long may be waited until something is to be done or is too late. */
  private long restNanos(long waitingSinceNanos) {
    long now = System.nanoTime();
    if (phase == Phase.BACKING_OFF) {
      return againNanos - now;
    }
    if (!attempt.connected()) {
      return options.connectTimeout().toNanos() - (now - attempt.startedNanos());
    }
    if (options.replyTimeout().isZero()) {
      return LONGEST_WAIT_NANOS;
    }
    long idleNanos = now - Math.max(waitingSinceNanos, progressNanos);
    return options.replyTimeout().toNanos() - idleNanos;
  }

  private void expire() {
    if (phase != Phase.RUNNING) {
      return;
    }
    if (!attempt.connected()) {
      attemptFailed(Failure.unconnected(options.endpoint()), OptionalLong.empty());
    } else {
      fail(
          Failure.deadline(
              "the pool at %s showed no progress for %s s"
                  .formatted(options.endpoint(), options.replyTimeout().toMillis() / 1000.0)));
    }
  }

  Schema resultSchema() {
    lock.lock();
    try {
      return resultSchema;
    } finally {
      lock.unlock();
    }
  }

  Report report() {
    lock.lock();
    try {
      if (report == null) {
        throw new IllegalStateException("the exchange has not ended");
      }
      return report;
    } finally {
      lock.unlock();
    }
  }

  long bytesReceived() {
    lock.lock();
    try {
      return bytesReceived;
    } finally {
      lock.unlock();
    }
  }

  /** Fails the exchange; returns the call to cancel, or null. */
  Attempt cancel(String reason) {
    lock.lock();
    try {
      if (phase != Phase.RUNNING && phase != Phase.BACKING_OFF) {
        return null;
      }
      replies.close();
      fail(Failure.cancelled(reason));
      return attempt;
    } finally {
      lock.unlock();
    }
  }

  /** Releases what is held; nothing is taken in any more. */
  void close() {
    lock.lock();
    try {
      phase = Phase.CLOSED;
      replies.close();
      log.close();
      changed.signalAll();
    } finally {
      lock.unlock();
    }
  }

  // The event loop's half.

  @Override
  public void onConnected() {
    lock.lock();
    try {
      changed.signalAll();
    } finally {
      lock.unlock();
    }
  }

  @Override
  public void onEvent(Attempt from, ReplyEvent event, int sizeBytes)
      throws MalformedReplyException {
    lock.lock();
    try {
      bytesReceived += sizeBytes;
      progressNanos = System.nanoTime();
      if (from != attempt || phase != Phase.RUNNING) {
        drop(event);
        return;
      }
      workDone |= !(event instanceof ReplyEvent.Failed);
      if (from.consumed() > 0) {
        log.consumedThrough(from.base() + from.consumed());
      }
      take(from, event);
      changed.signalAll();
    } finally {
      lock.unlock();
    }
  }

  private static void drop(ReplyEvent event) {
    if (event instanceof ReplyEvent.Batch dropped) {
      dropped.batch().close();
    }
  }

  private void take(Attempt from, ReplyEvent event) throws MalformedReplyException {
    if (event instanceof ReplyEvent.Batch batch) {
      takeBatch(from, batch);
    } else if (event instanceof ReplyEvent.SchemaKnown known) {
      takeSchema(known.schema());
    } else if (event instanceof ReplyEvent.Finished finished) {
      takeFinish(finished.report());
    } else if (event instanceof ReplyEvent.Failed failed) {
      takeError(Failure.inBand(failed.error()));
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
    replies.add(Reply.batch(number, batch.batch()), from);
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
  private void takeError(Failure error) {
    inBand = error;
    if (error.kind() != ErrorKind.ERROR_KIND_POOL_FULL) {
      attemptFailed(error, OptionalLong.empty());
    }
  }

  @Override
  public void onBroken(Attempt from, Failure broken) {
    lock.lock();
    try {
      if (from == attempt && phase == Phase.RUNNING) {
        attemptFailed(broken, OptionalLong.empty());
      }
    } finally {
      lock.unlock();
    }
  }

  @Override
  public void onClosed(Attempt from, Status status, Metadata trailers) {
    lock.lock();
    try {
      if (from != attempt || phase != Phase.RUNNING) {
        return;
      }
      Failure reason = inBand != null ? inBand : Failure.ofStatus(status, options.endpoint());
      boolean lost = reason.origin() == Failure.Origin.CONNECTION;
      // All results are here and counted: a connection that breaks now has nothing to take away.
      if (from.state() == ReplyProtocol.State.FINISHED && lost) {
        phase = Phase.FINISHED;
        changed.signalAll();
      } else {
        attemptFailed(reason, Failure.retryAfterMilliseconds(trailers));
      }
    } finally {
      lock.unlock();
    }
  }

  private void attemptFailed(Failure reason, OptionalLong hint) {
    boolean lostOnTheWire = reason.origin() == Failure.Origin.CONNECTION && attempt.connected();
    Recovery.Progress progress =
        new Recovery.Progress(
            workDone || lostOnTheWire, attempt.base(), startedBatch(), log.replayable());
    long now = System.nanoTime();
    Recovery.Decision decision = recovery.decide(reason, progress, hint, now);
    if (decision instanceof Recovery.Decision.Again again) {
      phase = Phase.BACKING_OFF;
      againNanos = now + again.pause().toNanos();
      workDone = false;
      inBand = null;
      changed.signalAll();
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
    changed.signalAll();
  }
}
