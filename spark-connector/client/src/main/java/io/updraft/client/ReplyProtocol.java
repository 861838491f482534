// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import com.google.protobuf.InvalidProtocolBufferException;
import io.updraft.proto.v1.Admitted;
import io.updraft.proto.v1.ArtifactsWanted;
import io.updraft.proto.v1.BatchPart;
import io.updraft.proto.v1.Finish;
import io.updraft.proto.v1.ReplyMetadata;
import io.updraft.proto.v1.SegmentRange;
import org.apache.arrow.flatbuf.MessageHeader;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;

/**
 * State machine of the pool's side of one call: which messages the pool may send in which state,
 * and whether its counts agree. {@link FlightDataReader} provides the messages, and {@link
 * ExchangeCore} handles the resulting events. Uses no transport and no locks.
 */
final class ReplyProtocol implements AutoCloseable {
  /** State of the pool's side. */
  enum State {
    /** No message has arrived, except requests for the function or artifacts. */
    INIT,
    /** The pool has the artifacts, but the exchange has no worker yet. */
    PROVIDED,
    /** The exchange has a worker; the schema has not arrived yet. */
    ADMITTED,
    /** The schema has arrived; batches may follow. */
    STREAMING,
    /** The pool has announced that it sent all results. */
    FINISHED,
    /** The pool has reported why it failed. */
    FAILED;

    /** Event reported by the pool. */
    enum Event {
      /** The pool asks for the function or an artifact. */
      WANTED,
      /** The pool has all artifacts. */
      PROVIDED,
      ADMITTED,
      SCHEMA,
      BATCH,
      FINISHED,
      FAILED
    }

    /** Return the next state; null if the event is not allowed in this state. */
    State after(Event event) {
      return switch (event) {
        case WANTED -> this == INIT ? INIT : null;
        case PROVIDED -> this == INIT ? PROVIDED : null;
        case ADMITTED -> this == INIT || this == PROVIDED ? ADMITTED : null;
        case SCHEMA -> this == ADMITTED ? STREAMING : null;
        case BATCH -> this == STREAMING ? STREAMING : null;
        case FINISHED -> isLast() ? null : FINISHED;
        case FAILED -> isLast() ? null : FAILED;
      };
    }

    boolean isLast() {
      return this == FINISHED || this == FAILED;
    }
  }

  private static final String AFTER_THE_LAST = "the pool sent a message after its last one";
  private static final String UNNUMBERED = "the pool sent Arrow data without a sequence number";

  /** Supplier of message bodies that are in a segment. */
  @FunctionalInterface
  interface SegmentBodies {
    /** Return a copy of a body, which the caller closes. */
    ArrowBuf take(SegmentRange range) throws MalformedReplyException;
  }

  private final PartedBody parted;
  private final SegmentBodies inSegment;

  /**
   * Directory of the segment that the pool may offer; empty if the pool must not offer a segment.
   */
  private String segmentDirectory = "";

  private State state = State.INIT;
  private long consumed;
  private long batches;
  private long rows;

  ReplyProtocol(ClientOptions options, SegmentBodies inSegment) {
    this.parted = new PartedBody(options.maxBatchBytes());
    this.inSegment = inSegment;
  }

  State state() {
    return state;
  }

  /** Return the number of the last request batch that the function took. */
  long consumed() {
    return consumed;
  }

  /**
   * Accept the next message.
   *
   * @throws MalformedReplyException if the message breaks the protocol
   */
  ReplyEvent accept(IncomingMessage message) throws MalformedReplyException {
    if (state.isLast()) {
      throw new MalformedReplyException(AFTER_THE_LAST);
    }
    ReplyMetadata metadata = metadata(message);
    takeConsumed(metadata.getConsumed());
    return switch (metadata.getEventCase()) {
      case ERROR -> failed(metadata);
      case FINISH -> finished(metadata.getFinish());
      case SEQUENCE -> batch(message, metadata);
      case PART -> part(message, metadata.getPart());
      case ARTIFACTS_WANTED -> artifactsWanted(metadata.getArtifactsWanted());
      case PAYLOAD_WANTED -> payloadWanted();
      case ADMITTED -> admitted(metadata.getAdmitted());
      case SEGMENT -> segment(metadata.getSegment());
      case EVENT_NOT_SET -> schemaOrCredit(message, metadata);
    };
  }

  private static ReplyMetadata metadata(IncomingMessage message) throws MalformedReplyException {
    try {
      return ReplyMetadata.parseFrom(message.appMetadata());
    } catch (InvalidProtocolBufferException e) {
      throw new MalformedReplyException("a reply's app_metadata is not a ReplyMetadata", e);
    }
  }

  /**
   * Record the number of the last batch that the function took. Zero means that the message does
   * not contain this number.
   */
  private void takeConsumed(long number) throws MalformedReplyException {
    if (number != 0 && number < consumed) {
      throw new MalformedReplyException(
          "the pool reported batch " + number + " as consumed, after batch " + consumed);
    }
    consumed = Math.max(consumed, number);
  }

  private void move(State.Event event, String refusal) throws MalformedReplyException {
    State next = state.after(event);
    if (next == null) {
      throw new MalformedReplyException(refusal);
    }
    state = next;
  }

  private ReplyEvent failed(ReplyMetadata metadata) throws MalformedReplyException {
    move(State.Event.FAILED, AFTER_THE_LAST);
    return new ReplyEvent.Failed(metadata.getError());
  }

  private ReplyEvent finished(Finish finish) throws MalformedReplyException {
    if (parted.isOpen()) {
      throw new MalformedReplyException("the pool finished inside a batch");
    }
    if (finish.getBatches() != batches || finish.getRows() != rows) {
      throw new MalformedReplyException(
          "the pool announced %d batches with %d rows, but sent %d batches with %d rows"
              .formatted(finish.getBatches(), finish.getRows(), batches, rows));
    }
    move(State.Event.FINISHED, AFTER_THE_LAST);
    return new ReplyEvent.Finished(finish.getReport());
  }

  private ReplyEvent batch(IncomingMessage message, ReplyMetadata metadata)
      throws MalformedReplyException {
    long sequence = metadata.getSequence();
    move(State.Event.BATCH, "the pool sent a batch before its schema");
    if (sequence != batches + 1) {
      throw new MalformedReplyException(
          "the pool sent batch " + sequence + " after batch " + batches);
    }
    if (message.header().length == 0
        || IpcReader.kind(message.header()) != MessageHeader.RecordBatch) {
      throw new MalformedReplyException("reply " + sequence + " has no batch");
    }
    ArrowRecordBatch batch =
        metadata.hasBody() ? readPlaced(message, metadata.getBody()) : read(message);
    int[] rowEnds = metadata.getRowEndsList().stream().mapToInt(Integer::intValue).toArray();
    if (!areOffsets(rowEnds, batch.getLength())) {
      batch.close();
      throw new MalformedReplyException(
          "the row ends of reply " + sequence + " must be non-decreasing offsets within its rows");
    }
    batches = sequence;
    rows += batch.getLength();
    return new ReplyEvent.Batch(sequence, batch, rowEnds, metadata.getHasAccumulators());
  }

  private ArrowRecordBatch read(IncomingMessage message) throws MalformedReplyException {
    if (!parted.isOpen()) {
      return IpcReader.batch(message.header(), message.batchBody());
    }
    try (ArrowBuf whole = parted.completed(message.batchBody())) {
      return IpcReader.batch(message.header(), whole);
    }
  }

  private ArrowRecordBatch readPlaced(IncomingMessage message, SegmentRange range)
      throws MalformedReplyException {
    if (message.body() != null || parted.isOpen()) {
      throw new MalformedReplyException("the body of a reply is in a message and in the segment");
    }
    try (ArrowBuf body = inSegment.take(range)) {
      return IpcReader.batch(message.header(), body);
    }
  }

  private ReplyEvent part(IncomingMessage message, BatchPart part) throws MalformedReplyException {
    if (state != State.STREAMING) {
      throw new MalformedReplyException("the pool sent a part of a batch before its schema");
    }
    if (message.header().length > 0) {
      throw new MalformedReplyException("a part of a batch has a header, but is not the last part");
    }
    parted.add(part, message.batchBody());
    return new ReplyEvent.Credit();
  }

  /** Release the parts of an incomplete batch. */
  @Override
  public void close() {
    parted.close();
  }

  private static boolean areOffsets(int[] ends, int rows) {
    int last = 0;
    for (int end : ends) {
      if (end < last) {
        return false;
      }
      last = end;
    }
    return last <= rows;
  }

  private ReplyEvent artifactsWanted(ArtifactsWanted wanted) throws MalformedReplyException {
    move(
        wanted.getSha256Count() == 0 ? State.Event.PROVIDED : State.Event.WANTED,
        "the pool asked for artifacts after it had them all");
    return new ReplyEvent.ArtifactsWanted(wanted.getSha256List());
  }

  private ReplyEvent payloadWanted() throws MalformedReplyException {
    move(State.Event.WANTED, "the pool asked for the function after it had it");
    return new ReplyEvent.PayloadWanted();
  }

  private ReplyEvent admitted(Admitted admitted) throws MalformedReplyException {
    move(State.Event.ADMITTED, "the pool admitted the exchange a second time");
    segmentDirectory = admitted.getSegmentDirectory();
    return new ReplyEvent.Admitted();
  }

  private ReplyEvent segment(io.updraft.proto.v1.Segment offer) throws MalformedReplyException {
    if (segmentDirectory.isEmpty()) {
      throw new MalformedReplyException("the pool offered a segment without a directory, or twice");
    }
    String directory = segmentDirectory;
    segmentDirectory = "";
    return new ReplyEvent.SegmentOffered(directory, offer);
  }

  private ReplyEvent schemaOrCredit(IncomingMessage message, ReplyMetadata metadata)
      throws MalformedReplyException {
    if (message.header().length == 0) {
      return metadata.getLogLinesCount() == 0
          ? new ReplyEvent.Credit()
          : new ReplyEvent.Logged(metadata.getLogLinesList());
    }
    if (IpcReader.kind(message.header()) != MessageHeader.Schema) {
      throw new MalformedReplyException(UNNUMBERED);
    }
    move(State.Event.SCHEMA, UNNUMBERED);
    return new ReplyEvent.SchemaKnown(
        IpcReader.schema(message.header()), metadata.getHasAccumulators());
  }
}
