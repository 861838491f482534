// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.execution.python

import java.io.File

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.util.Utils
import org.apache.spark.{SparkEnv, TaskContext}

/** First-in, first-out queue of a task's rows. It is Spark's own queue, which in Spark 3.5 is
  * visible only inside this package.
  */
final class TaskRowQueue(columns: Int, context: TaskContext) extends AutoCloseable {
  private[this] val queue = HybridRowQueue(
    context.taskMemoryManager(),
    new File(Utils.getLocalDir(SparkEnv.get.conf)),
    columns
  )

  def add(row: UnsafeRow): Unit = queue.add(row): Unit

  /** Remove and return the oldest row. The row is valid until the next row is requested. */
  def remove(): UnsafeRow = queue.remove()

  override def close(): Unit = queue.close()
}
