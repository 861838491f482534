// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import com.google.protobuf.ByteString;
import io.grpc.Metadata;
import io.grpc.Status;
import io.updraft.proto.v1.Finish;
import io.updraft.proto.v1.Report;
import io.updraft.proto.v1.RequestMetadata;
import java.util.List;
import java.util.OptionalLong;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * State machine of an exchange: the task's requests, the events of the exchange's calls, and the
 * reactions to both. {@link Exchange} does the locking, sending and waiting.
 */
final class ExchangeCore extends CallCore {
  private final RequestLog log;
  private final ReplyQueue replies = new ReplyQueue();
  private final Recovery recovery;
  private final Admission admission = new Admission();
  private final BatchSlicer slicer;

  /** Number of the batch just before the first batch of the current call. */
  private long base;

  /** Rows in the batches sent by the current call. */
  private long sentRows;

  /** Number, within the current call, of the last batch that the function took. */
  private long consumed;

  private List<ByteString> wanted;
  private boolean payloadWanted;
  private boolean workDone;

  /** True if the pool should refuse the current call instead of queueing it. */
  private boolean refusable;

  private boolean helper;

  /** True for a helper until its first call is lost; its later calls are ordinary calls. */
  private boolean callsAsHelper;

  private boolean roomWanted;
  private boolean roomReported;
  private Schema resultSchema;

  /** The worker's measurements, set once the pool has sent every result of the current call. */
  private Report report;

  private long bytesReceived;

  ExchangeCore(ClientOptions options, Replay replay, long nowNanos) {
    this(options, replay, nowNanos, nowNanos);
  }

  private ExchangeCore(ClientOptions options, Replay replay, long openedNanos, long nowNanos) {
    super(options, openedNanos);
    this.log =
        new RequestLog(
            options.windowBatches(), options.windowBytes(), options.replayBytes(), replay);
    this.slicer = new BatchSlicer(options.maxMessageBytes());
    this.recovery = new Recovery(options, RetryBudget.of(options.endpoint()), nowNanos);
  }

  /** Return the core of a helper. The helper's deadline starts when this core is opened. */
  ExchangeCore newHelper(long nowNanos) {
    ExchangeCore core = new ExchangeCore(options(), Replay.REPLAY, openedNanos(), nowNanos);
    core.callsAsHelper = core.helper = true;
    return core;
  }

  boolean callsAsHelper() {
    return callsAsHelper;
  }

  boolean isAdmitted() {
    return isRunning() && admission.isAdmitted();
  }

  long admittedNanos() {
    return admission.admittedNanos();
  }

  boolean hasAnswered() {
    return log.answered() > 0;
  }

  /** Return whether the worker has updates of accumulators that a failed exchange would lose. */
  boolean expectsUpdates() {
    return log.hasUnreportedUpdates();
  }

  void reportRoom() {
    roomReported = true;
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

  int replays() {
    return recovery.replays();
  }

  /** Return whether the pool has asked for the deferred function. */
  boolean isPayloadWanted() {
    return payloadWanted;
  }

  /** Return whether a list of missing artifacts, perhaps empty, came since {@link #takeWanted}. */
  boolean isWantedKnown() {
    return wanted != null;
  }

  /** Return and clear the list of missing artifacts; null if no list has come. */
  List<ByteString> takeWanted() {
    List<ByteString> asked = wanted;
    wanted = null;
    return asked;
  }

  @Override
  void onBegun() {
    base = log.oneToOne() ? log.answered() : 0;
    sentRows = 0;
    consumed = 0;
    wanted = null;
    payloadWanted = false;
    workDone = false;
    refusable = call().hasAlternatives() && recovery.mayTryElsewhere();
    report = null;
    admission.restart();
    slicer.restart();
    log.restart();
  }

  /** Return whether the pool should refuse the current call instead of queueing it. */
  boolean isRefusable() {
    return refusable;
  }

  /** Record that the call has sent its command and everything that the pool asked for. */
  void opened(long commandBytes, long nowNanos) {
    admission.opened(commandBytes, nowNanos);
  }

  /** Return the next message of the current call; null if the message has to wait. */
  Step<RequestMetadata> nextToSend() {
    if (!isRunning()) {
      return null;
    }
    RequestBatch batch = log.untransmitted();
    if (batch != null) {
      if (!admission.takes(batch, log.replayable())) {
        return null;
      }
      return sent(slicer.next(batch));
    }
    if (isSendingFinished() && admission.takesFinish()) {
      admission.finish();
      Finish finish = Finish.newBuilder().setBatches(transmitted()).setRows(sentRows).build();
      return new Step<>(RequestMetadata.newBuilder().setFinish(finish).build(), null, true);
    }
    return null;
  }

  private Step<RequestMetadata> sent(BatchSlicer.Slice slice) {
    if (!slice.isLast()) {
      return new Step<>(RequestMetadata.newBuilder().setPart(slice.part()).build(), slice, false);
    }
    RequestBatch batch = slice.batch();
    admission.handOver(batch);
    log.transmit();
    sentRows += batch.rows();
    return new Step<>(batch.groups().metadata(transmitted()), slice, false);
  }

  /** Return how many batches the current call has sent. */
  private long transmitted() {
    return log.transmitted() - base;
  }

  boolean hasRoom() {
    boolean room = phase() == Phase.FINISHED || phase() == Phase.FAILED || log.hasRoom();
    roomWanted = !room;
    return room;
  }

  /** Take a batch over; close it before throwing. Return false if no call is open. */
  boolean admit(RequestBatch batch) {
    if (phase().isUndecided() && !isSendingFinished() && !log.hasRoom()) {
      batch.close();
      throw new IllegalStateException("the window has no room");
    }
    return admitBeyondWindow(batch);
  }

  /** Take a batch over like {@link #admit}, even if the window has no room. */
  boolean admitBeyondWindow(RequestBatch batch) {
    try {
      switch (phase()) {
        case FAILED -> throw failure();
        case CLOSED -> throw new IllegalStateException("the exchange is closed");
        case FINISHED -> batch.close();
        case RUNNING, BACKING_OFF -> add(batch);
      }
    } catch (RuntimeException e) {
      batch.close();
      throw e;
    }
    return isRunning();
  }

  private void add(RequestBatch batch) {
    if (isSendingFinished()) {
      throw new IllegalStateException("sending has finished");
    }
    log.add(batch);
    roomWanted = !log.hasRoom();
  }

  /** Return the next reply or the end; null if neither has arrived yet. */
  ReplyQueue.Entry next() {
    if (phase() == Phase.CLOSED) {
      throw new IllegalStateException("the exchange is closed");
    }
    ReplyQueue.Entry entry = replies.poll();
    if (entry != null && entry.reply().kind() == Reply.Kind.BATCH) {
      log.resultTaken();
    }
    if (entry == null && phase() == Phase.FAILED) {
      throw failure();
    }
    return entry == null && phase() == Phase.FINISHED ? ReplyQueue.END : entry;
  }

  /**
   * Return the next reply or the end. After a full window has room again, return {@link
   * ReplyQueue#ROOM} once.
   */
  ReplyQueue.Entry nextOrRoom() {
    ReplyQueue.Entry entry = next();
    boolean room = roomWanted && !isSendingFinished() && log.hasRoom();
    if (entry != null || !(room || roomReported)) {
      return entry;
    }
    roomWanted &= !room;
    roomReported = false;
    return ReplyQueue.ROOM;
  }

  /** Fail the exchange unless it has ended. */
  void cancel(String reason) {
    if (phase().isUndecided()) {
      replies.close();
      fail(Failure.cancelled(reason));
    }
  }

  @Override
  void close() {
    super.close();
    replies.close();
    log.close();
  }

  /**
   * Handle the next message of a call.
   *
   * @param consumedInCall number, within that call, of the last batch that the function took
   */
  void onEvent(Call from, ReplyEvent event, long consumedInCall, int sizeBytes, long nowNanos)
      throws MalformedReplyException {
    bytesReceived += sizeBytes;
    progressed(nowNanos);
    if (!isCurrent(from)) {
      event.drop();
      return;
    }
    if (consumedInCall > transmitted()) {
      event.drop();
      throw new MalformedReplyException(
          "the pool reported batch %d as consumed, but the task has sent %d"
              .formatted(consumedInCall, transmitted()));
    }
    workDone |= event.isWork();
    consumed = consumedInCall;
    if (consumed > 0) {
      log.consumedThrough(base + consumed);
    }
    if (event instanceof ReplyEvent.Batch batch) {
      takeBatch(from, batch);
    } else if (event instanceof ReplyEvent.ArtifactsWanted artifacts) {
      wanted = artifacts.digests();
    } else if (event instanceof ReplyEvent.PayloadWanted) {
      payloadWanted = true;
    } else if (event instanceof ReplyEvent.Admitted) {
      admission.admitted(nowNanos);
    } else if (event instanceof ReplyEvent.Logged logged) {
      replies.add(Reply.logged(logged.lines()), from);
    } else if (event instanceof ReplyEvent.SchemaKnown known) {
      takeSchema(known.schema());
      log.expectUpdates(known.hasAccumulators());
    } else if (event instanceof ReplyEvent.Finished finished) {
      takeFinish(finished.report());
    } else if (event instanceof ReplyEvent.Failed failed) {
      takeError(Failure.inBand(failed.error()), nowNanos);
    }
  }

  private void takeBatch(Call from, ReplyEvent.Batch batch) throws MalformedReplyException {
    long number = batch.sequence();
    log.expectUpdates(batch.hasAccumulators());
    if (log.oneToOne()) {
      number += base;
      try {
        log.answeredNext(batch.batch().getLength());
      } catch (MalformedReplyException e) {
        batch.drop();
        throw e;
      }
      recovery.progressed();
    }
    replies.add(Reply.batch(number, batch.batch(), batch.rowEnds()), from);
  }

  private void takeSchema(Schema schema) throws MalformedReplyException {
    if (resultSchema != null && !resultSchema.equals(schema)) {
      throw new MalformedReplyException(
          "another worker returned a different schema: " + schema + ", not " + resultSchema);
    }
    resultSchema = schema;
  }

  private void takeFinish(Report finished) throws MalformedReplyException {
    boolean answered = isSendingFinished() && log.answered() == log.sent();
    if (log.oneToOne() && !answered) {
      throw new MalformedReplyException(
          "the pool finished after %d of %d batches".formatted(log.answered(), log.sent()));
    }
    report = finished;
  }

  @Override
  void onClosed(Call from, Status status, Metadata trailers, long nowNanos) {
    // All results have arrived and their counts agree, so a connection that breaks now does no
    // harm.
    boolean complete = isCurrent(from) && report != null;
    if (complete && reasonOf(status, nowNanos).origin() == Failure.Origin.CONNECTION) {
      finish();
    } else {
      super.onClosed(from, status, trailers, nowNanos);
    }
  }

  @Override
  Recovery.Decision decide(Failure reason, OptionalLong hint, long nowNanos) {
    if (helper && log.answered() == log.sent()) {
      // The task has lost no batch and continues without this helper.
      return new Recovery.Decision.GiveUp(log.explained(reason, options()));
    }
    callsAsHelper = false;
    boolean connected = call().connected();
    // A call that has sent no batch has done no work: it was waiting for a worker or for its input.
    boolean lostOnTheWire =
        reason.origin() == Failure.Origin.CONNECTION && connected && admission.hasHandedOver();
    if (admission.isOpen() && connected) {
      recovery.waited(nowNanos - admission.openedNanos());
    }
    long started = log.startedBatch(base, consumed);
    Recovery.Progress progress =
        new Recovery.Progress(
            workDone || lostOnTheWire, base, started, log.replayable(), call().reach());
    Recovery.Decision decision = recovery.decide(reason, progress, hint, nowNanos);
    if (decision instanceof Recovery.Decision.GiveUp last) {
      return new Recovery.Decision.GiveUp(log.explained(last.failure(), options()));
    }
    if (!log.oneToOne()) {
      // Drop the replies now. Otherwise the task could take one of them before the next call
      // begins.
      replies.dropBatches();
    }
    return decision;
  }
}
