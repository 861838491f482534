// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import com.google.protobuf.ByteString;
import io.updraft.proto.v1.Error;
import io.updraft.proto.v1.Report;
import java.util.List;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.types.pojo.Schema;

/** Meaning of one message of the pool, after {@link ReplyProtocol} has accepted it. */
sealed interface ReplyEvent {
  /** Return whether the event shows that the function may have seen a batch. */
  default boolean isWork() {
    boolean before =
        this instanceof ArtifactsWanted
            || this instanceof PayloadWanted
            || this instanceof Admitted;
    return !before && !(this instanceof Failed);
  }

  /** Release the event's memory. Call this if nobody takes the event over. */
  default void drop() {}

  /**
   * Schema of the results.
   *
   * @param hasAccumulators true if the worker will report updates of accumulators when it finishes
   */
  record SchemaKnown(Schema schema, boolean hasAccumulators) implements ReplyEvent {}

  /** The function took request batches; {@link ReplyProtocol#consumed} says how many. */
  record Credit() implements ReplyEvent {}

  /** The pool asks for these artifacts; an empty list means that the pool has every artifact. */
  record ArtifactsWanted(List<ByteString> digests) implements ReplyEvent {}

  /** The pool has room for the exchange and asks for the exchange's function. */
  record PayloadWanted() implements ReplyEvent {}

  /** The exchange has a worker: batches of any size may be sent. */
  record Admitted() implements ReplyEvent {}

  /**
   * Bodies may pass through a segment from now on.
   *
   * @param directory directory of the segment, from the pool's front
   */
  record SegmentOffered(String directory, io.updraft.proto.v1.Segment offer)
      implements ReplyEvent {}

  /** Log lines of the function for the session. */
  record Logged(List<String> lines) implements ReplyEvent {}

  /**
   * Batch of results, owned by the holder of the event.
   *
   * @param hasAccumulators as in {@link SchemaKnown}: a function may load accumulators at any batch
   */
  record Batch(long sequence, ArrowRecordBatch batch, int[] rowEnds, boolean hasAccumulators)
      implements ReplyEvent {
    @Override
    public void drop() {
      batch.close();
    }
  }

  /** The pool has sent all results, and all have arrived. */
  record Finished(Report report) implements ReplyEvent {}

  /** The exchange failed in the pool. */
  record Failed(Error error) implements ReplyEvent {}
}
