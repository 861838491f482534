// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.exchange

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.updraft.{InputFiles, SparkInternals}
import org.apache.spark.sql.vectorized.ColumnarBatch

import io.updraft.client.Replay
import io.updraft.spark.config.UdfSettings

/** Functions over Arrow columns: an exchange's columns are their arguments. */
final class EvalRunner(
    settings: UdfSettings,
    call: FunctionCall,
    spec: RequestSpec,
    newResults: () => Results,
    replay: Replay,
    metrics: ExchangeMetrics
) extends TaskRunner(settings, call, metrics) {

  override def runBatches(
      partition: Int,
      input: Iterator[ColumnarBatch],
      context: TaskContext
  ): Iterator[ColumnarBatch] =
    run(partition, context)((builder, files) => new ColumnarFeed(input, builder, files))

  override def runRows(
      partition: Int,
      input: Iterator[InternalRow],
      context: TaskContext
  ): Iterator[ColumnarBatch] =
    run(partition, context)((builder, files) => new RowFeed(input, builder, files))

  private def run(partition: Int, context: TaskContext)(
      feed: (RequestBuilder, InputFiles) => RequestSource
  ): Iterator[ColumnarBatch] = {
    val files = new InputFiles
    val builder = new RequestBuilder.OfArguments(spec, SparkInternals.allocator, partition)
    pipeline(
      feed(builder, files),
      builder.schema,
      newResults(),
      replay,
      files,
      context
    )
  }
}
