// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.updraft.proto.v1.Abort;
import io.updraft.proto.v1.Ask;
import io.updraft.proto.v1.Delivery;
import io.updraft.proto.v1.ErrorKind;
import io.updraft.proto.v1.Receipt;
import io.updraft.proto.v1.WriteReplyMetadata;
import io.updraft.proto.v1.WriteRequestMetadata;
import java.util.EnumSet;
import java.util.OptionalLong;
import java.util.Set;

/**
 * State machine of a file being written: what to send next, which replies the writer may send in
 * which stage, and what to do when a call is lost. {@link FileExchange} does the locking, sending
 * and waiting.
 */
final class FileCore extends CallCore {
  /** Stage of this side of a call. */
  enum Stage {
    /** The command is not sent yet. No other message may precede it. */
    OPENING,
    /** Requests for credit and batches may follow. */
    OPEN,
    /** This side has asked the writer to finish the file and sends nothing more. */
    FINISHED,
    /** This side has told the writer to abandon the file and sends nothing more. */
    ABORTED;

    /** Event that advances the stage: the message that was sent. */
    enum Event {
      OPENED,
      FINISHED,
      ABORTED
    }

    /** Return the next stage; an event that comes too early or too late changes nothing. */
    Stage after(Event event) {
      return switch (event) {
        case OPENED -> this == OPENING ? OPEN : this;
        case FINISHED -> this == OPEN ? FINISHED : this;
        case ABORTED -> this == OPEN ? ABORTED : this;
      };
    }
  }

  /**
   * Failures after which the file may have been published, because the writer did not report the
   * outcome.
   */
  private static final Set<ErrorKind> UNANSWERED =
      EnumSet.of(
          ErrorKind.ERROR_KIND_DEADLINE,
          ErrorKind.ERROR_KIND_POOL_UNAVAILABLE,
          ErrorKind.ERROR_KIND_WORKER);

  private static final String IN_DOUBT =
      "; the task had asked the writer to finish the file, so the writer may have published it";

  private final Delivery delivery;
  private final CreditWindow window;

  private Stage stage = Stage.OPENING;

  /** Null until the first call is lost. */
  private Recovery recovery;

  private Receipt receipt;
  private long receivedBytes;
  private long storedBytes;

  FileCore(ClientOptions options, Delivery delivery, long nowNanos) {
    super(options, nowNanos);
    this.delivery = delivery;
    this.window = new CreditWindow(options);
  }

  /** Throw if the file has failed or was closed. */
  void check() {
    if (phase() == Phase.FAILED) {
      throw failure();
    }
    if (phase() == Phase.CLOSED) {
      throw new IllegalStateException("the file was closed");
    }
  }

  /**
   * Return whether the window accepts one more batch of this size. An empty window accepts a batch
   * of any size.
   *
   * @throws ExchangeException if the file has failed
   */
  boolean hasRoom(long bytes) {
    check();
    return window.hasRoom(bytes);
  }

  /**
   * Return whether the writer has stored every batch. The writer reports this only at a synchronous
   * pace.
   *
   * @throws ExchangeException if the file has failed
   */
  boolean isStored() {
    check();
    return window.isStored();
  }

  /**
   * Return whether the receipt has arrived and every byte of a returned file is stored.
   *
   * @throws ExchangeException if the file has failed
   */
  boolean isWhole() {
    check();
    return isReceived();
  }

  private boolean isReceived() {
    return phase() == Phase.FINISHED && receivedBytes == storedBytes;
  }

  /** Return the receipt; null until the file is whole. */
  Receipt receipt() {
    return isReceived() ? receipt : null;
  }

  /** Take a batch over. If the file accepts no more batches, close the batch and throw. */
  void admit(RequestBatch batch) {
    if (isSendingFinished() || phase() == Phase.CLOSED) {
      batch.close();
      throw new IllegalStateException("sending has finished");
    }
    window.add(batch);
  }

  @Override
  void onBegun() {
    stage = Stage.OPENING;
    window.restart();
  }

  /** Record that the command was sent. */
  void opened() {
    stage = stage.after(Stage.Event.OPENED);
  }

  /**
   * Return the next message; null if nothing may be sent now.
   *
   * @param ready true if the transport accepts a batch without queueing it
   */
  Step<WriteRequestMetadata> nextToSend(boolean ready) {
    if (!isRunning() || stage != Stage.OPEN) {
      return null;
    }
    Ask ask = window.nextAsk();
    if (ask != null) {
      return new Step<>(WriteRequestMetadata.newBuilder().setAsk(ask).build(), null, false);
    }
    if (window.hasCredit() && ready) {
      BatchSlicer.Slice slice = window.send();
      var metadata = WriteRequestMetadata.newBuilder();
      if (slice.isLast()) {
        metadata.setSequence(window.sent());
      } else {
        metadata.setPart(slice.part());
      }
      return new Step<>(metadata.build(), slice, false);
    }
    if (isSendingFinished() && window.isEmpty()) {
      stage = stage.after(Stage.Event.FINISHED);
      var metadata = WriteRequestMetadata.newBuilder().setFinish(window.finish()).build();
      return new Step<>(metadata, null, true);
    }
    return null;
  }

  /**
   * Abandon the file. Return the message that reports this to the writer; null if no message may be
   * sent any more.
   */
  Step<WriteRequestMetadata> abort(String reason) {
    if (stage != Stage.OPEN) {
      return null;
    }
    stage = stage.after(Stage.Event.ABORTED);
    Abort abort = Abort.newBuilder().setReason(reason).build();
    return new Step<>(WriteRequestMetadata.newBuilder().setAbort(abort).build(), null, true);
  }

  /** Fail the file unless it is whole. */
  @Override
  void fail(Failure reason) {
    boolean unstored = phase() == Phase.FINISHED && !isReceived();
    if (phase().isUndecided() || unstored) {
      failWith(isInDoubt(reason) ? reason.withMessage(reason.message() + IN_DOUBT) : reason);
    }
  }

  /**
   * Return whether the file may have been published: the writer was asked to finish it and has not
   * reported the outcome.
   */
  private boolean isInDoubt(Failure reason) {
    boolean unanswered = reason.details() == null && UNANSWERED.contains(reason.kind());
    boolean told = isRunning() && stage == Stage.FINISHED;
    return told && unanswered && delivery == Delivery.DELIVERY_DIRECT;
  }

  /**
   * Handle a message of a call.
   *
   * @param partBytes number of the file's bytes in the message
   * @return whether the caller has to store the bytes in the message
   */
  boolean onReply(Call from, WriteReplyMetadata reply, long partBytes, long nowNanos)
      throws MalformedReplyException {
    if (from == call()) {
      progressed(nowNanos);
    }
    if (!isCurrent(from)) {
      return false;
    }
    window.takeCredit(reply.getCredit());
    window.takeStored(reply.getStored());
    switch (reply.getEventCase()) {
      case OFFSET -> takePart(reply.getOffset(), partBytes);
      case RECEIPT -> takeReceipt(reply.getReceipt());
      case ERROR -> takeError(Failure.inBand(reply.getError()), nowNanos);
      case KEEP_ALIVE, EVENT_NOT_SET -> {}
    }
    return reply.getEventCase() == WriteReplyMetadata.EventCase.OFFSET;
  }

  private void takePart(long offset, long bytes) throws MalformedReplyException {
    if (delivery != Delivery.DELIVERY_RETURN || offset != receivedBytes) {
      throw new MalformedReplyException(
          "the writer returned bytes at offset %d, expected offset %d"
              .formatted(offset, receivedBytes));
    }
    receivedBytes += bytes;
  }

  private void takeReceipt(Receipt found) throws MalformedReplyException {
    long sent = window.sent();
    long sentRows = window.sentRows();
    boolean agrees =
        stage == Stage.FINISHED && found.getBatches() == sent && found.getRows() == sentRows;
    boolean whole = delivery != Delivery.DELIVERY_RETURN || found.getFileBytes() == receivedBytes;
    if (!agrees || !whole) {
      throw new MalformedReplyException(
          "the receipt has %d rows in %d batches and %d bytes; sent: %d rows in %d batches, returned: %d bytes"
              .formatted(
                  found.getRows(),
                  found.getBatches(),
                  found.getFileBytes(),
                  sentRows,
                  sent,
                  receivedBytes));
    }
    receipt = found;
    finish();
  }

  /** Record that returned bytes are stored. */
  void onStored(int bytes, long nowNanos) {
    progressed(nowNanos);
    storedBytes += bytes;
  }

  /** Fail the file if its call breaks before every part is stored. */
  @Override
  void onBroken(Call from, Failure broken) {
    if (from == call()) {
      fail(broken);
    }
  }

  /**
   * Allow another call to replace a lost one as long as no batch was sent and no part came back.
   */
  @Override
  Recovery.Decision decide(Failure reason, OptionalLong hint, long nowNanos) {
    if (recovery == null) {
      // The time limit for a full writer starts here, because the task may send its first batch
      // long after it opened the file.
      recovery =
          new Recovery(
              options(),
              RetryBudget.of(options().endpoint()),
              reason.isWithoutRoom() ? nowNanos : openedNanos());
    }
    boolean workDone = window.sent() > 0 || receivedBytes > 0;
    var progress = new Recovery.Progress(workDone, 0, 0, false, call().reach());
    return recovery.decide(reason, progress, hint, nowNanos);
  }

  @Override
  void close() {
    super.close();
    window.close();
  }
}
