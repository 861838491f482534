// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.input

import scala.jdk.CollectionConverters._

import org.apache.arrow.vector.types.pojo.Schema
import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.types.{BinaryType, StructType}
import org.apache.spark.sql.updraft.{ArrowSchemas, InputFiles, SparkInternals}
import org.apache.spark.sql.vectorized.ColumnarBatch

import io.updraft.spark.task.once.CallOnce

/** Factory of a task's requests, for operators with one child. Made on the driver, serialized to
  * the tasks.
  */
trait TaskInput extends Serializable {

  /** Return the schema of the exchange's input. */
  def schema: Schema

  def ofRows(rows: Iterator[InternalRow], files: InputFiles, partition: Int): RequestSource

  /** Return the input that generated code fills directly, without building rows; None if requests
    * are made from whole rows.
    */
  def fused: Option[FusedInput] = None

  def ofBatches(
      batches: Iterator[ColumnarBatch],
      files: InputFiles,
      partition: Int
  ): RequestSource = ofRows(batches.flatMap(_.rowIterator().asScala), files, partition)
}

/** Input that copies both rows and vectors into columns. */
abstract class ColumnInput extends TaskInput {

  protected def builder(partition: Int): RequestBuffer

  override def ofRows(
      rows: Iterator[InternalRow],
      files: InputFiles,
      partition: Int
  ): RequestSource = new RowFeed(rows, builder(partition), files)

  override def ofBatches(
      batches: Iterator[ColumnarBatch],
      files: InputFiles,
      partition: Int
  ): RequestSource = new ColumnarFeed(batches, builder(partition), files)
}

/** Input of functions that take values: a column for each argument.
  *
  * @param once
  *   policy of functions that are called once for each value
  */
final class ArgumentInput(spec: RequestSpec, once: Option[CallOnce] = None) extends ColumnInput {

  override def schema: Schema = spec.inputSchema

  override def fused: Option[FusedInput] =
    if (once.isEmpty) Some(new FusedInput(spec, new RequestBuilder.OfArguments(spec, _))) else None

  override protected def builder(partition: Int): RequestBuffer = {
    val direct = new RequestBuilder.OfArguments(spec, partition)
    once.filter(_.isWorthwhile).fold[RequestBuffer](direct) { policy =>
      val sent = new SentTuples.OfColumns(spec)
      new OnceBuffer(spec, partition, policy, sent, direct, TaskContext.get())
    }
  }
}

/** Input of functions that take whole rows: one struct column. */
final class RowInput(spec: RequestSpec, rowType: StructType) extends ColumnInput {

  private def rowSchema = ArrowSchemas.of(rowType, spec.timeZone, spec.largeVarTypes)

  override def schema: Schema = SparkInternals.rowSchema(rowSchema)

  override def fused: Option[FusedInput] =
    Some(new FusedInput(spec, new RequestBuilder.OfRows(spec, rowSchema, _)))

  override protected def builder(partition: Int): RequestBuffer =
    new RequestBuilder.OfRows(spec, rowSchema, partition)
}

/** Input of functions that take pickled rows. Each value in the exchange is a pickled list of rows,
  * in Spark's own encoding.
  *
  * @param once
  *   policy of functions that are called once for each value
  */
final class PickledInput(spec: RequestSpec, pickling: Pickling, once: Option[CallOnce] = None)
    extends TaskInput {

  override def schema: Schema =
    ArrowSchemas.of(RequestSpec.numbered(Seq(BinaryType)), spec.timeZone, largeVarTypes = false)

  override def ofRows(
      rows: Iterator[InternalRow],
      files: InputFiles,
      partition: Int
  ): RequestSource =
    once.filter(_.isWorthwhile) match {
      case Some(policy) => new RowFeed(rows, buffer(policy, partition), files)
      case None => new PickledFeed(rows, spec, pickling, files, partition)
    }

  private def buffer(policy: CallOnce, partition: Int) = {
    // As in PickledFeed, the first request is small, and no request has to be large.
    val limits = spec.limits.copy(
      sliceRows = pickling.listRows,
      requestBytes = math.min(PickledFeed.MostBytes, spec.limits.requestBytes)
    )
    val small = spec.copy(limits = limits)
    def sent = new SentTuples.OfPickles(small, pickling)
    val direct = new TupleBuffer(small, partition, sent)
    new OnceBuffer(small, partition, policy, sent, direct, TaskContext.get())
  }
}
