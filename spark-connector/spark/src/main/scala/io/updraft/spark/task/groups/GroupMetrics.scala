// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.groups

import org.apache.spark.sql.execution.UnsafeExternalRowSorter
import org.apache.spark.sql.execution.metric.{SQLMetric, SQLMetrics}
import org.apache.spark.sql.updraft.{SparkInternals, TaskPages}
import org.apache.spark.{SparkContext, TaskContext}

/** Costs of grouping rows, under the names of Spark's sort metrics. */
final class GroupMetrics(val all: Map[String, SQLMetric]) extends Serializable {

  /** Record the memory of the rows grouped in these pages. */
  def grouped(pages: TaskPages, context: TaskContext): Unit = used(pages.size, context)

  /** Record the sort of the rows that did not fit, and how much it spilled. */
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
