// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.output

import java.util.ArrayDeque

import org.apache.arrow.vector.types.pojo.Schema

import io.updraft.client.Reply
import io.updraft.spark.task.input.RetainedRows

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
