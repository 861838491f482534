// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.output

import java.util.ArrayDeque

import org.apache.spark.sql.vectorized.ColumnVector

import io.updraft.client.Reply
import io.updraft.spark.columns.SelectedColumn
import io.updraft.spark.task.input.Kept

/** Which input row each output of a table function belongs to.
  *
  * Outputs come in the order of the rows, one for each; those that come after the last row (of
  * `terminate`) are joined to it, as Spark's own operator does. The outputs of one reply belong to
  * one request.
  */
final class AnsweredRows extends AutoCloseable {
  private[this] var request = Kept(0, 0, Array.empty, null)
  private[this] var row = -1
  private[this] var within = false

  /** The request before, which the batch that was given out last may still show. */
  private[this] var previous = request

  /** A reply begins: it answers the oldest waiting request once the one at hand has no row left. */
  def beginReply(waiting: ArrayDeque[Kept]): Unit =
    if (!within && !waiting.isEmpty && row + 1 >= request.rows) {
      previous.close()
      previous = request
      request = waiting.poll()
      row = -1
    }

  /** The row that the next output belongs to, or that of the output which goes on. */
  def beginOutput(): Int = {
    if (!within && row + 1 < request.rows) row += 1
    within = true
    row
  }

  def endOutput(): Unit = within = false

  /** For each row of a reply the row of the request that it belongs to. */
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

  /** The columns that stayed behind, for rows of the request at hand. */
  def columns(rows: Array[Int]): Array[ColumnVector] =
    request.columns.map(new SelectedColumn(_, rows))

  /** The block of a file that a row of the request at hand comes from. */
  def fileOf(row: Int): AnyRef = request.fileOf(row)

  override def close(): Unit = {
    previous.close()
    request.close()
  }
}
