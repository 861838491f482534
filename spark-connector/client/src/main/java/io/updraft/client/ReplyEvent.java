// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import com.google.protobuf.ByteString;
import io.updraft.proto.v1.Error;
import io.updraft.proto.v1.Report;
import java.util.List;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.types.pojo.Schema;

/** What one message of the pool means, once {@link ReplyProtocol} has found it in order. */
sealed interface ReplyEvent {
  /** Whether it shows that the function may have seen a batch. */
  default boolean isWork() {
    boolean before =
        this instanceof ArtifactsWanted
            || this instanceof PayloadWanted
            || this instanceof Admitted;
    return !before && !(this instanceof Failed);
  }

  /** Releases what nobody will take. */
  default void drop() {}

  /** The schema of the results. */
  record SchemaKnown(Schema schema) implements ReplyEvent {}

  /** The function took request batches; {@link ReplyProtocol#consumed} says how many. */
  record Credit() implements ReplyEvent {}

  /** The pool lacks these artifacts; none: it has all of them. */
  record ArtifactsWanted(List<ByteString> digests) implements ReplyEvent {}

  /** The pool has room for the exchange and asks for its function. */
  record PayloadWanted() implements ReplyEvent {}

  /** The exchange has its worker: batches of any size may be sent. */
  record Admitted() implements ReplyEvent {}

  /** What the function logged for the session. */
  record Logged(List<String> lines) implements ReplyEvent {}

  /** Results, owned by whoever holds the event. */
  record Batch(long sequence, ArrowRecordBatch batch, int[] rowEnds) implements ReplyEvent {
    @Override
    public void drop() {
      batch.close();
    }
  }

  /** All results were sent and all have arrived. */
  record Finished(Report report) implements ReplyEvent {}

  /** The exchange failed in the pool. */
  record Failed(Error error) implements ReplyEvent {}
}
