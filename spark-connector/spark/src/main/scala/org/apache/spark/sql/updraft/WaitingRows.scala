// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.python.TaskRowQueue

/** Rows of a task that wait for their results, first in, first out. Spark's own queue holds the
  * rows in the task's memory and spills to disk if memory is short.
  */
final class WaitingRows(columns: Int, context: TaskContext) {
  private[this] val queue = new TaskRowQueue(columns, context)

  context.addTaskCompletionListener[Unit](_ => queue.close())

  /** Keep a copy of a row, which must be an UnsafeRow. */
  def add(row: InternalRow): Unit = queue.add(row.asInstanceOf[UnsafeRow])

  /** Remove and return the oldest row. The row is valid until the next row is requested. */
  def remove(): InternalRow = queue.remove()
}
