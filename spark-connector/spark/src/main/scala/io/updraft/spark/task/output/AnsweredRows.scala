// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.output

import java.util.ArrayDeque

import org.apache.arrow.vector.types.pojo.Schema
import org.apache.spark.sql.vectorized.ColumnVector

import io.updraft.client.Reply
import io.updraft.spark.columns.SelectedColumn
import io.updraft.spark.task.input.RetainedRows

/** Mapping from a table function's outputs to its input rows.
  *
  * Outputs arrive in the order of the rows, one output for each row. Later outputs (from
  * `terminate`) are joined to the last row, as in Spark's own operator. The outputs of one reply
  * belong to one request.
  */
final class AnsweredRows extends AutoCloseable {
  private[this] var request = RetainedRows(0, 0, Array.empty, null)
  private[this] var row = -1
  private[this] var within = false

  /** Previous request. The last returned batch may still use the columns of this request. */
  private[this] var previous = request

  /** Begin a reply. If the current request has no rows left, the reply answers the oldest waiting
    * request.
    */
  def beginReply(waiting: ArrayDeque[RetainedRows]): Unit =
    if (!within && !waiting.isEmpty && row + 1 >= request.rows) {
      previous.close()
      previous = request
      request = waiting.poll()
      row = -1
    }

  /** Begin an output, or continue one. Return the row to which the output belongs. */
  def beginOutput(): Int = {
    if (!within && row + 1 < request.rows) row += 1
    within = true
    row
  }

  def endOutput(): Unit = within = false

  /** Return, for each row of a reply, the row of the request to which it belongs. */
  def of(reply: Reply): Array[Int] = {
    val rows = new Array[Int](reply.rows())
    var from = 0
    reply.rowEnds().foreach { end =>
      java.util.Arrays.fill(rows, from, end, beginOutput())
      endOutput()
      from = end
    }
    if (from < rows.length) java.util.Arrays.fill(rows, from, rows.length, beginOutput())
    rows
  }

  /** Return the columns that stayed in the executor, for rows of the current request. */
  def columns(rows: Array[Int]): Array[ColumnVector] =
    request.columns.map(new SelectedColumn(_, rows))

  /** Return the file block of a row of the current request. */
  def fileOf(row: Int): AnyRef = request.fileOf(row)

  override def close(): Unit = {
    previous.close()
    request.close()
  }
}

/** Rows that a table function returned as Arrow columns, each joined to its input row. */
final class TableResults(replies: ReplyReader) extends Results {
  private[this] val answered = new AnsweredRows

  override def of(
      reply: Reply,
      waiting: ArrayDeque[RetainedRows],
      schema: Schema
  ): Iterator[ResultBatch] = {
    answered.beginReply(waiting)
    val rows = answered.of(reply)
    val columns = answered.columns(rows) ++ replies.read(reply, rows.length, schema)
    Iterator.single(ResultBatch(rows.length, columns, answered.fileOf(0)))
  }

  /** Accept unanswered requests: a function may skip the rest of its input. */
  override def ended(waiting: ArrayDeque[RetainedRows]): Unit = ()

  override def close(): Unit = answered.close()
}
