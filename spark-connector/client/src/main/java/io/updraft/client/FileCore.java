// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.grpc.Metadata;
import io.grpc.Status;
import io.updraft.proto.v1.Abort;
import io.updraft.proto.v1.Ask;
import io.updraft.proto.v1.Delivery;
import io.updraft.proto.v1.ErrorKind;
import io.updraft.proto.v1.Finish;
import io.updraft.proto.v1.Receipt;
import io.updraft.proto.v1.WriteReplyMetadata;
import io.updraft.proto.v1.WriteRequestMetadata;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.OptionalLong;
import java.util.Set;
import java.util.function.Supplier;

/**
 * A file on its way as a state machine: what is to be sent next, what the writer may say when, what
 * follows when a call is lost. It calls nothing of gRPC, waits for nothing and locks nothing;
 * {@link FileExchange} does.
 */
final class FileCore implements AutoCloseable {
  /** How far the file is. */
  private enum Phase {
    /** A call is open. */
    RUNNING,
    /** There is no call, or it was lost before it took a batch; the next begins at a set time. */
    BACKING_OFF,
    /** The receipt is here and agrees with what was sent. */
    RECEIVED,
    /** Nothing can be done. */
    FAILED,
    /** The task wants no file, or has its receipt. */
    CLOSED
  }

  /** A message to send, and the batch in it; {@code last}: nothing follows. */
  record Step(WriteRequestMetadata metadata, RequestBatch batch, boolean last) {}

  /** So many asks may be without an answer: the protocol's limit. */
  private static final int MOST_UNANSWERED_ASKS = 16;

  /** Failures that this side or the connection finds; the writer may have published the file. */
  private static final Set<ErrorKind> UNANSWERED =
      EnumSet.of(
          ErrorKind.ERROR_KIND_DEADLINE,
          ErrorKind.ERROR_KIND_POOL_UNAVAILABLE,
          ErrorKind.ERROR_KIND_WORKER);

  private static final String IN_DOUBT =
      "; the writer was told to finish the file: whether it published the file is not known";

  private final ClientOptions options;
  private final Delivery delivery;
  private final long openedNanos;

  /** Batches that were not sent, and how many bytes they have. */
  private final List<RequestBatch> waiting = new ArrayList<>();

  private long waitingBytes;

  private Phase phase = Phase.BACKING_OFF;
  private Supplier<Reach> reach = () -> Reach.RESOLVED;
  private Recovery recovery;
  private Failure failure;
  private Failure inBand;
  private Receipt receipt;
  private long againNanos;
  private long asked;
  private long credit;
  private long sent;
  private long sentRows;
  private long storedBatches;
  private long receivedBytes;
  private long storedBytes;
  private boolean described;
  private boolean finishing;
  private boolean finished;

  FileCore(ClientOptions options, Delivery delivery, long nowNanos) {
    this.options = options;
    this.delivery = delivery;
    this.openedNanos = nowNanos;
    this.againNanos = nowNanos;
  }

  boolean isRunning() {
    return phase == Phase.RUNNING;
  }

  boolean isRecoveryDue(long nowNanos) {
    return phase == Phase.BACKING_OFF && againNanos - nowNanos <= 0;
  }

  /** Until the next call may begin; only between calls. */
  long restNanos(long nowNanos) {
    return againNanos - nowNanos;
  }

  /** Throws what has ended the file. */
  void check() {
    if (phase == Phase.FAILED) {
      throw failure.toException();
    }
    if (phase == Phase.CLOSED) {
      throw new IllegalStateException("the file was closed");
    }
  }

  /** Whether one more batch of so many bytes may be held here; a single one always may. */
  boolean hasRoom(long bytes) {
    return waiting.isEmpty() || waitingBytes + bytes <= options.windowBytes();
  }

  /**
   * Whether everything that was taken over is stored, as a writer tells with a synchronous pace.
   */
  boolean isStored() {
    return waiting.isEmpty() && storedBatches == sent;
  }

  /** Takes a batch over; one that comes too late is dropped. */
  void admit(RequestBatch batch) {
    if (finishing || phase == Phase.CLOSED) {
      batch.close();
      throw new IllegalStateException("the sending was finished");
    }
    waiting.add(batch);
    waitingBytes += batch.bodyBytes();
  }

  void finishSending() {
    finishing = true;
  }

  /** The receipt, once every byte of a returned file is stored; else null. */
  Receipt receipt() {
    return phase == Phase.RECEIVED && receivedBytes == storedBytes ? receipt : null;
  }

  /**
   * A new call takes over; false when the file has ended.
   *
   * @param reach what is known of the call's endpoint
   */
  boolean begin(Supplier<Reach> reach) {
    if (phase != Phase.BACKING_OFF) {
      return false;
    }
    this.reach = reach;
    phase = Phase.RUNNING;
    asked = 0;
    credit = 0;
    described = false;
    finished = false;
    inBand = null;
    return true;
  }

  /** The call's first message was sent, which says what to write: nothing may go before it. */
  void described() {
    described = true;
  }

  /**
   * What is to be sent next, or null.
   *
   * @param ready whether the transport takes a batch without queueing it
   */
  Step next(boolean ready) {
    if (phase != Phase.RUNNING || !described || finished) {
      return null;
    }
    if (asked < sent + waiting.size() && asked - credit < MOST_UNANSWERED_ASKS) {
      RequestBatch batch = waiting.get((int) (asked - sent));
      asked++;
      Ask ask = Ask.newBuilder().setBodyBytes(batch.bodyBytes()).build();
      return new Step(WriteRequestMetadata.newBuilder().setAsk(ask).build(), null, false);
    }
    if (sent < credit && ready) {
      return nextBatch();
    }
    if (finishing && waiting.isEmpty()) {
      finished = true;
      Finish finish = Finish.newBuilder().setBatches(sent).setRows(sentRows).build();
      return new Step(WriteRequestMetadata.newBuilder().setFinish(finish).build(), null, true);
    }
    return null;
  }

  private Step nextBatch() {
    RequestBatch batch = waiting.remove(0);
    waitingBytes -= batch.bodyBytes();
    sent++;
    sentRows += batch.rows();
    return new Step(WriteRequestMetadata.newBuilder().setSequence(sent).build(), batch, false);
  }

  /** Gives the file up; what is to be said of that, or null after the last message was sent. */
  Step abort(String reason) {
    if (finished || !described) {
      return null;
    }
    finished = true;
    Abort abort = Abort.newBuilder().setReason(reason).build();
    return new Step(WriteRequestMetadata.newBuilder().setAbort(abort).build(), null, true);
  }

  /** Whether the writer has said why there is no file: the end of its call is near. */
  boolean hasError() {
    return inBand != null;
  }

  /** Fails the file unless it has ended. */
  void fail(Failure reason) {
    boolean unstored = phase == Phase.RECEIVED && receipt() == null;
    if (phase == Phase.RUNNING || phase == Phase.BACKING_OFF || unstored) {
      boolean inDoubt = isInDoubt(reason);
      phase = Phase.FAILED;
      failure = inDoubt ? reason.withMessage(reason.message() + IN_DOUBT) : reason;
    }
  }

  /** Whether the writer was told to finish the file and has not said what became of it. */
  private boolean isInDoubt(Failure reason) {
    boolean unanswered = reason.details() == null && UNANSWERED.contains(reason.kind());
    boolean told = phase == Phase.RUNNING && finishing && finished;
    return told && unanswered && delivery == Delivery.DELIVERY_DIRECT;
  }

  /** A message of the writer. */
  void onReply(WriteReplyMetadata reply, long partBytes, long nowNanos)
      throws MalformedReplyException {
    if (phase != Phase.RUNNING) {
      return;
    }
    takeCredit(reply.getCredit());
    takeStored(reply.getStored());
    switch (reply.getEventCase()) {
      case OFFSET -> takePart(reply.getOffset(), partBytes);
      case RECEIPT -> takeReceipt(reply.getReceipt());
      case ERROR -> takeError(Failure.inBand(reply.getError()), nowNanos);
      case KEEP_ALIVE, EVENT_NOT_SET -> {}
    }
  }

  /** Zero is what a message without the field reads as: it says nothing. */
  private void takeCredit(long number) throws MalformedReplyException {
    if (number != 0 && (number < credit || number > asked)) {
      throw new MalformedReplyException(
          "the writer gave leave up to batch %d after %d, of %d asked for"
              .formatted(number, credit, asked));
    }
    credit = Math.max(credit, number);
  }

  private void takeStored(long number) throws MalformedReplyException {
    if (number > sent) {
      throw new MalformedReplyException(
          "the writer has stored batch %d of %d that were sent".formatted(number, sent));
    }
    storedBatches = Math.max(storedBatches, number);
  }

  private void takePart(long offset, long bytes) throws MalformedReplyException {
    if (delivery != Delivery.DELIVERY_RETURN || offset != receivedBytes) {
      throw new MalformedReplyException(
          "bytes at %d came where %d was expected".formatted(offset, receivedBytes));
    }
    receivedBytes += bytes;
  }

  private void takeReceipt(Receipt found) throws MalformedReplyException {
    boolean agrees = finished && found.getBatches() == sent && found.getRows() == sentRows;
    boolean whole = delivery != Delivery.DELIVERY_RETURN || found.getFileBytes() == receivedBytes;
    if (!agrees || !whole) {
      throw new MalformedReplyException(
          "the receipt has %d rows in %d batches and %d bytes: %d in %d were sent and %d came back"
              .formatted(
                  found.getRows(),
                  found.getBatches(),
                  found.getFileBytes(),
                  sentRows,
                  sent,
                  receivedBytes));
    }
    receipt = found;
    phase = Phase.RECEIVED;
  }

  /** A full writer's status, which comes next, says when to come again; the others are final. */
  private void takeError(Failure error, long nowNanos) {
    inBand = error;
    if (!error.isWithoutRoom()) {
      lose(error, OptionalLong.empty(), nowNanos);
    }
  }

  void onStored(int bytes) {
    storedBytes += bytes;
  }

  /** The call ended with a status. */
  void onClosed(Status status, Metadata trailers, long nowNanos) {
    if (phase == Phase.RUNNING) {
      Failure reason = inBand != null ? inBand : Failure.ofStatus(status, options);
      lose(reason, Failure.retryAfterMilliseconds(trailers), nowNanos);
    }
  }

  /** The call is lost: as long as no batch was sent another one can take its place. */
  void lose(Failure reason, OptionalLong hint, long nowNanos) {
    if (recovery == null) {
      // The first batch may come long after the file was opened: only then a full writer matters.
      recovery =
          new Recovery(
              options,
              RetryBudget.of(options.endpoint()),
              reason.isWithoutRoom() ? nowNanos : openedNanos);
    }
    var progress = new Recovery.Progress(sent > 0, 0, 0, false, reach.get());
    Recovery.Decision decision = recovery.decide(reason, progress, hint, nowNanos);
    if (decision instanceof Recovery.Decision.Again again) {
      phase = Phase.BACKING_OFF;
      againNanos = nowNanos + again.pause().toNanos();
    } else if (decision instanceof Recovery.Decision.GiveUp last) {
      fail(last.failure());
    }
  }

  /** Releases what was not sent; nothing is taken in any more. */
  @Override
  public void close() {
    phase = Phase.CLOSED;
    waiting.forEach(RequestBatch::close);
    waiting.clear();
    waitingBytes = 0;
  }
}
