// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.groups

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.execution.SortExec
import org.apache.spark.sql.updraft.{SparkInternals, TaskPages}

/** How a task's rows come to lie group by group. Made on the driver, serialized to the tasks. */
sealed trait GroupedRows extends Serializable {

  /** The rows, groups in the order of their keys, a group's rows as they came. A row is valid until
    * the next one is asked for.
    */
  def of(rows: Iterator[InternalRow]): Iterator[InternalRow]
}

object GroupedRows {

  /** The child gives them so. */
  case object FromChild extends GroupedRows {
    override def of(rows: Iterator[InternalRow]): Iterator[InternalRow] = rows
  }

  /** Reads all rows and copies each to where its group is, which costs less than a sort. What is
    * too much for that is sorted by Spark, which moves to disk what its memory cannot hold.
    *
    * @param sort
    *   of the child's rows by the keys
    * @param nullsRotate
    *   see [[RowGroups]]
    */
  final case class ByKeys(
      keys: Seq[Expression],
      child: Seq[Attribute],
      sort: SortExec,
      nullsRotate: Boolean,
      metrics: GroupMetrics
  ) extends GroupedRows {

    override def of(rows: Iterator[InternalRow]): Iterator[InternalRow] = {
      val context = TaskContext.get()
      val pages = TaskPages.of(context)
      val groups = new RowGroups(keys, child, nullsRotate, pages)
      val unsafe = unsafeRows(rows)
      var left: UnsafeRow = null
      while (left == null && unsafe.hasNext) {
        val row = unsafe.next()
        if (!groups.add(row)) left = row
      }
      metrics.grouped(pages, context)
      groups.mergedWith(
        if (left == null) Iterator.empty else sorted(Iterator.single(left) ++ unsafe, context)
      )
    }

    private def unsafeRows(rows: Iterator[InternalRow]): Iterator[UnsafeRow] = {
      lazy val projection = UnsafeProjection.create(child, child)
      rows.map {
        case row: UnsafeRow => row
        case row => projection(row)
      }
    }

    private def sorted(rows: Iterator[UnsafeRow], context: TaskContext): Iterator[InternalRow] = {
      val sorter = sort.createSorter()
      val spilledBefore = SparkInternals.spilled(context)
      val result = sorter.sort(rows)
      metrics.sorted(sorter, SparkInternals.spilled(context) - spilledBefore, context)
      result
    }
  }
}
