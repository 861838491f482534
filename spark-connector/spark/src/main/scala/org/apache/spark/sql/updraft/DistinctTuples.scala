// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.TaskContext
import org.apache.spark.memory.SparkOutOfMemoryError
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.map.BytesToBytesMap

/** Distinct argument tuples of a task, each with the place of its result. Tuples are equal if their
  * bytes are equal. So NaNs with different bits differ, 0.0 differs from -0.0, and strings differ
  * even if their collation treats them as equal.
  *
  * The table is Spark's own hash map and uses the task's memory.
  */
final class DistinctTuples(context: TaskContext) extends AutoCloseable {
  private[this] var map: BytesToBytesMap = _
  private[this] val place = new Array[Long](1)
  private[this] var full = false

  /** Return the place of a tuple. A tuple that the table does not know gets the place `next`. */
  def placeOf(tuple: UnsafeRow, next: Long): Long = {
    if (map == null && !full) allocate()
    if (full) next
    else {
      val found = map.lookup(tuple.getBaseObject, tuple.getBaseOffset, tuple.getSizeInBytes)
      if (found.isDefined) Platform.getLong(found.getValueBase, found.getValueOffset)
      else {
        place(0) = next
        full = !found.append(
          tuple.getBaseObject,
          tuple.getBaseOffset,
          tuple.getSizeInBytes,
          place,
          Platform.LONG_ARRAY_OFFSET.toLong,
          8
        )
        next
      }
    }
  }

  private def allocate(): Unit =
    try
      map = new BytesToBytesMap(
        context.taskMemoryManager(),
        DistinctTuples.FirstTuples,
        DistinctTuples.PageBytes
      )
    catch { case _: SparkOutOfMemoryError => full = true }

  /** Return whether Spark could not allocate memory for another tuple. */
  def isFull: Boolean = full

  def bytes: Long = if (map == null) 0L else map.getTotalMemoryConsumption

  /** Forget all tuples and release their memory. */
  override def close(): Unit = {
    if (map != null) map.free()
    map = null
    full = false
  }
}

private object DistinctTuples {

  /** Initial capacity of the table, in tuples. */
  private val FirstTuples = 1024

  /** Bytes of the task's memory that the table requests at a time. */
  private val PageBytes = 1L << 20
}
