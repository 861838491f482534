// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.python.HybridRowQueue

/** Rows of a task that wait for their results, first in, first out. This is Spark's own queue,
  * which uses the task's memory and spills to disk if that is short.
  */
final class WaitingRows(columns: Int, context: TaskContext) {
  private[this] val queue = HybridRowQueue(context.taskMemoryManager(), columns)

  context.addTaskCompletionListener[Unit](_ => queue.close())

  /** Keep a copy of a row, which must be an UnsafeRow. */
  def add(row: InternalRow): Unit = queue.add(row.asInstanceOf[UnsafeRow])

  /** Remove and return the oldest row; valid until the next one is requested. */
  def remove(): InternalRow = queue.remove()
}
