// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.exchange

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.types.{DataType, StructType}
import org.apache.spark.sql.updraft.{ArrowSchemas, InputFiles, SparkInternals}
import org.apache.spark.sql.vectorized.ColumnarBatch

import io.updraft.client.Replay
import io.updraft.spark.config.UdfSettings

/** What a function of the map family was declared to return.
  *
  * @param row
  *   the struct of a row
  * @param columns
  *   the operator's output
  * @param operation
  *   names the kind of function in errors
  * @param check
  *   what of replies is compared with it
  */
final case class RowResult(
    row: DataType,
    columns: Seq[DataType],
    operation: String,
    check: RowCheck
)

/** How strictly the rows of replies must be what was declared: as strictly as stock is. */
sealed trait RowCheck extends Serializable

object RowCheck {

  /** Every type and whether it may be null. */
  case object Types extends RowCheck

  /** That the columns can be read as the declared ones: Python has compared the rest. */
  case object Layout extends RowCheck

  /** Nothing (`spark.sql.execution.pyspark.arrow.validateSchema` is off). */
  case object Nothing extends RowCheck
}

/** Functions of the map family: iterators of batches in and out, which answer when they like. */
final class MapRunner(
    settings: UdfSettings,
    call: FunctionCall,
    spec: RequestSpec,
    rowType: StructType,
    result: RowResult,
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
    val rowSchema = ArrowSchemas.of(rowType, spec.timeZone, spec.largeVarTypes)
    val builder =
      new RequestBuilder.OfRows(spec, rowSchema, SparkInternals.allocator, partition)
    pipeline(
      feed(builder, files),
      builder.schema,
      Results.unprompted(new ReplyReader.OfRows(result, SparkInternals.allocator)),
      Replay.NEVER,
      files,
      context
    )
  }
}
