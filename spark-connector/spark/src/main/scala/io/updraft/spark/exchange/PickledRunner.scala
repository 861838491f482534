// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.exchange

import scala.jdk.CollectionConverters._

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.types.{BinaryType, StructField, StructType}
import org.apache.spark.sql.updraft.{ArrowSchemas, InputFiles, SparkInternals}
import org.apache.spark.sql.vectorized.ColumnarBatch

import io.updraft.client.Replay
import io.updraft.spark.config.UdfSettings

/** How rows are pickled.
  *
  * @param listRows
  *   rows of one pickled list
  * @param binaryAsBytes
  *   whether binary values become bytes, or bytearray as before Spark 4.1
  */
final case class Pickling(listRows: Int, binaryAsBytes: Boolean)

/** Functions over pickled rows: a value of the exchange is a pickled list of rows, in Spark's own
  * encoding.
  */
final class PickledRunner(
    settings: UdfSettings,
    call: FunctionCall,
    spec: RequestSpec,
    pickling: Pickling,
    newResults: () => Results,
    replay: Replay,
    metrics: ExchangeMetrics
) extends TaskRunner(settings, call, metrics) {

  override def runBatches(
      partition: Int,
      input: Iterator[ColumnarBatch],
      context: TaskContext
  ): Iterator[ColumnarBatch] =
    runRows(partition, input.flatMap(_.rowIterator().asScala), context)

  override def runRows(
      partition: Int,
      input: Iterator[InternalRow],
      context: TaskContext
  ): Iterator[ColumnarBatch] = {
    val files = new InputFiles
    val schema = ArrowSchemas.of(
      StructType(Seq(StructField("_0", BinaryType))),
      spec.timeZone,
      largeVarTypes = false
    )
    pipeline(
      new PickledFeed(input, spec, pickling, files, SparkInternals.allocator, partition),
      schema,
      newResults(),
      replay,
      files,
      context
    )
  }
}
