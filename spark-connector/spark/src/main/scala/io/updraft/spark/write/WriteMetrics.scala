// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write

import org.apache.spark.SparkContext
import org.apache.spark.sql.execution.metric.{SQLMetric, SQLMetrics}
import org.apache.spark.util.LongAccumulator

import io.updraft.proto.v1.Receipt

/** Costs of the files of one write. Each cost is counted twice: in named accumulators, which Spark
  * shows with the write's stage, for each task and in total, and in the metrics of an operator,
  * which Spark shows in the SQL tab. (The metrics of Spark's write command are a fixed list.)
  */
abstract class WriteMetrics extends Serializable {

  protected def add(name: String, value: Long): Unit

  def finished(receipt: Receipt): Unit = {
    add("updraftFiles", 1)
    add("updraftRawBytes", receipt.getRawBytes)
    add("updraftFileBytes", receipt.getFileBytes)
    add("updraftRowGroups", receipt.getFooter.getRowGroups)
    add("updraftThrottledTime", receipt.getTimings.getAdmissionMilliseconds)
    add("updraftEncodeTime", receipt.getTimings.getEncodeMilliseconds)
    add("updraftStoreTime", receipt.getTimings.getStoreMilliseconds)
  }

  /** Record a file that Spark's own writer makes. */
  def ownFile(): Unit = add("updraftOwnFiles", 1)

  /** Record the end of a file, whether it succeeded or failed. */
  def closed(waitedNanos: Long): Unit = add("updraftWaitTime", waitedNanos / 1000000)
}

final class StageMetrics(counters: Map[String, LongAccumulator]) extends WriteMetrics {
  override protected def add(name: String, value: Long): Unit = counters(name).add(value)
}

final class PlanMetrics(val all: Map[String, SQLMetric]) extends WriteMetrics {
  override protected def add(name: String, value: Long): Unit = all(name).add(value)
}

object WriteMetrics {
  private val OwnFiles = "files by Spark's own writer"
  private val Counts = Map("updraftFiles" -> "files", "updraftRowGroups" -> "row groups")
  private val Sizes =
    Map("updraftRawBytes" -> "bytes of rows", "updraftFileBytes" -> "bytes of files")
  private val Times = Map(
    "updraftThrottledTime" -> "throttled by the quota",
    "updraftEncodeTime" -> "spent encoding",
    "updraftStoreTime" -> "spent storing",
    "updraftWaitTime" -> "that tasks waited"
  )

  /** Return metrics backed by named accumulators. */
  def ofStage(context: SparkContext): StageMetrics = new StageMetrics(
    (Counts ++ Sizes ++ Times.transform((_, text) => s"ms $text")).transform((_, text) =>
      context.longAccumulator(s"updraft writer: $text")
    )
  )

  /** Return a named accumulator for the files of a write that Spark's own writer makes. */
  def ofOwnFiles(context: SparkContext, reason: String): LongAccumulator =
    context.longAccumulator(s"updraft writer: $OwnFiles, because of $reason")

  /** Return metrics of an operator. */
  def ofPlan(context: SparkContext): PlanMetrics = new PlanMetrics(
    (Counts + ("updraftOwnFiles" -> OwnFiles)).transform((_, text) =>
      SQLMetrics.createMetric(context, text)
    ) ++
      Sizes.transform((_, text) => SQLMetrics.createSizeMetric(context, text)) ++
      Times.transform((_, text) => SQLMetrics.createTimingMetric(context, s"time $text"))
  )
}
