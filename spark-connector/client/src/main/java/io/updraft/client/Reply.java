// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import java.util.List;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;

/**
 * What an exchange reports to its task thread: a batch of results, room in the window, or the end.
 *
 * @param kind what happened
 * @param sequence of one-to-one functions the number of the {@link Exchange#send} that this batch
 *     answers, counted from 1, also after a replay; of others the number of the reply. Zero unless
 *     {@link Kind#BATCH}
 * @param batch the batch, which the caller closes; null unless {@link Kind#BATCH}
 * @param rowEnds of table functions the rows of the batch before which the output of an input row
 *     ends, in order and within the batch. Not to be changed
 * @param lines as PySpark's worker wrote them; empty unless {@link Kind#LOG}
 */
public record Reply(
    Kind kind, long sequence, ArrowRecordBatch batch, int[] rowEnds, List<String> lines) {
  /** What happened. */
  public enum Kind {
    /** A batch of results. */
    BATCH,
    /** The function logged something for the session. */
    LOG,
    /** The window has room for one more request batch. */
    ROOM,
    /** The pool finished and its counts agree with what was received. */
    END
  }

  private static final int[] NO_ROWS = {};

  /** Says that the window opened. */
  public static final Reply ROOM = new Reply(Kind.ROOM, 0, null, NO_ROWS, List.of());

  /** Says that every result was delivered. */
  public static final Reply END = new Reply(Kind.END, 0, null, NO_ROWS, List.of());

  static Reply batch(long sequence, ArrowRecordBatch batch, int[] rowEnds) {
    return new Reply(Kind.BATCH, sequence, batch, rowEnds, List.of());
  }

  static Reply logged(List<String> lines) {
    return new Reply(Kind.LOG, 0, null, NO_ROWS, lines);
  }

  /** Rows of the batch; zero unless {@link Kind#BATCH}. */
  public int rows() {
    return batch == null ? 0 : batch.getLength();
  }
}
