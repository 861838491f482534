// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.exchange

import scala.jdk.CollectionConverters._

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.updraft.{InputFiles, SparkInternals}
import org.apache.spark.sql.vectorized.ColumnarBatch

import io.updraft.client.Replay
import io.updraft.spark.config.UdfSettings

/** Functions over the groups of one input, which answer when they like. */
final class GroupedMapRunner(
    settings: UdfSettings,
    call: FunctionCall,
    input: GroupedInput,
    result: RowResult,
    metrics: ExchangeMetrics
) extends TaskRunner(settings, call, metrics) {

  override def runBatches(
      partition: Int,
      batches: Iterator[ColumnarBatch],
      context: TaskContext
  ): Iterator[ColumnarBatch] =
    runRows(partition, batches.flatMap(_.rowIterator().asScala), context)

  override def runRows(
      partition: Int,
      rows: Iterator[InternalRow],
      context: TaskContext
  ): Iterator[ColumnarBatch] = {
    val files = new InputFiles
    val builder = input.builder(partition)
    pipeline(
      new GroupedFeed(rows, input.boundary, builder, input.spec.limits, files),
      builder.schema,
      Results.freeRunning(new ReplyReader.OfRows(result, SparkInternals.allocator)),
      Replay.NEVER,
      files,
      context
    )
  }
}
