// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.groups

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.execution.metric.{SQLMetric, SQLMetrics}
import org.apache.spark.sql.execution.{SortExec, UnsafeExternalRowSorter}
import org.apache.spark.sql.updraft.{SparkInternals, TaskPages}
import org.apache.spark.{SparkContext, TaskContext}

/** Method that makes the rows of each group of a task contiguous. Made on the driver, serialized to
  * the tasks.
  */
sealed trait GroupedRows extends Serializable {

  /** Return the rows in the order that Spark's sort by the keys would produce. A row is valid until
    * the next row is requested.
    */
  def of(rows: Iterator[InternalRow]): Iterator[InternalRow]
}

object GroupedRows {

  /** The child already returns grouped rows. */
  case object FromChild extends GroupedRows {
    override def of(rows: Iterator[InternalRow]): Iterator[InternalRow] = rows
  }

  /** Grouping in memory. It reads all rows and copies each row to the memory of the row's group.
    * This takes less time than a sort. If the rows do not fit into memory, Spark sorts the
    * remaining rows and spills to disk.
    *
    * @param sort
    *   sort of the child's rows by the keys
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

/** Metrics of grouping rows, under the names of Spark's sort metrics. */
final class GroupMetrics(val all: Map[String, SQLMetric]) extends Serializable {

  /** Record the memory of the rows grouped in these pages. */
  def grouped(pages: TaskPages, context: TaskContext): Unit = used(pages.size, context)

  /** Record the sort of the rows that did not fit, and how many bytes the sort spilled. */
  def sorted(sorter: UnsafeExternalRowSorter, spilledBytes: Long, context: TaskContext): Unit = {
    all("sortTime") += sorter.getSortTimeNanos / 1000000
    all("spillSize") += spilledBytes
    used(sorter.getPeakMemoryUsage, context)
  }

  private def used(bytes: Long, context: TaskContext): Unit = {
    all("peakMemory") += bytes
    SparkInternals.addPeakMemory(context, bytes)
  }
}

object GroupMetrics {

  def create(context: SparkContext): GroupMetrics = new GroupMetrics(
    Map(
      "sortTime" -> SQLMetrics.createTimingMetric(context, "sort time"),
      "peakMemory" -> SQLMetrics.createSizeMetric(context, "peak memory"),
      "spillSize" -> SQLMetrics.createSizeMetric(context, "spill size")
    )
  )
}
