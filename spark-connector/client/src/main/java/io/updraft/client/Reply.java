// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import java.util.List;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;

/**
 * What an exchange reports to its task thread: a batch of results, room in the window, or the end.
 */
public final class Reply {
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

  private final Kind kind;
  private final long sequence;
  private final ArrowRecordBatch batch;
  private final int[] rowEnds;
  private final List<String> lines;

  private Reply(
      Kind kind, long sequence, ArrowRecordBatch batch, int[] rowEnds, List<String> lines) {
    this.kind = kind;
    this.sequence = sequence;
    this.batch = batch;
    this.rowEnds = rowEnds;
    this.lines = lines;
  }

  static Reply batch(long sequence, ArrowRecordBatch batch, int[] rowEnds) {
    return new Reply(Kind.BATCH, sequence, batch, rowEnds, List.of());
  }

  static Reply logged(List<String> lines) {
    return new Reply(Kind.LOG, 0, null, NO_ROWS, lines);
  }

  /** What happened. */
  public Kind kind() {
    return kind;
  }

  /**
   * One-to-one functions: the number of the {@link Exchange#send} that this batch answers, counted
   * from 1, also after a replay. Other functions: the number of the reply. Zero unless {@link
   * Kind#BATCH}.
   */
  public long sequence() {
    return sequence;
  }

  /** Rows of the batch; zero unless {@link Kind#BATCH}. */
  public int rows() {
    return batch == null ? 0 : batch.getLength();
  }

  /** The batch, which the caller closes; null unless {@link Kind#BATCH}. */
  public ArrowRecordBatch batch() {
    return batch;
  }

  /** Lines as PySpark's worker wrote them; empty unless {@link Kind#LOG}. */
  public List<String> lines() {
    return lines;
  }

  /**
   * Table functions: rows of the batch before which the output of an input row ends, in order and
   * within the batch. Not to be changed.
   */
  public int[] rowEnds() {
    return rowEnds;
  }
}
