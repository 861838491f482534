// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import java.util.List;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;

/**
 * What an exchange returns to its task thread: a batch of results, log lines, a report of room in
 * the window, or the end.
 *
 * @param kind kind of report
 * @param sequence for one-to-one functions, the number of the {@link Exchange#send} that this batch
 *     answers, counted from 1, even after a replay; for other functions, the number of the reply.
 *     Zero unless {@link Kind#BATCH}
 * @param batch the batch, which the caller closes; null unless {@link Kind#BATCH}
 * @param rowEnds for table functions: for each input row whose output ends in the batch, the offset
 *     just after that output, in order. Must not be modified
 * @param lines log lines as PySpark's worker wrote them; empty unless {@link Kind#LOG}
 */
public record Reply(
    Kind kind, long sequence, ArrowRecordBatch batch, int[] rowEnds, List<String> lines) {
  /** Kind of report. */
  public enum Kind {
    /** A batch of results. */
    BATCH,
    /** The function logged something for the session. */
    LOG,
    /** The window has room for one more request batch. */
    ROOM,
    /** The pool has finished, and its counts agree with what was received. */
    END
  }

  private static final int[] NO_ROWS = {};

  /** Report that the window has room again. */
  public static final Reply ROOM = new Reply(Kind.ROOM, 0, null, NO_ROWS, List.of());

  /** Report that every result was delivered. */
  public static final Reply END = new Reply(Kind.END, 0, null, NO_ROWS, List.of());

  static Reply batch(long sequence, ArrowRecordBatch batch, int[] rowEnds) {
    return new Reply(Kind.BATCH, sequence, batch, rowEnds, List.of());
  }

  static Reply logged(List<String> lines) {
    return new Reply(Kind.LOG, 0, null, NO_ROWS, lines);
  }

  /** Return the number of rows in the batch; zero unless {@link Kind#BATCH}. */
  public int rows() {
    return batch == null ? 0 : batch.getLength();
  }
}
