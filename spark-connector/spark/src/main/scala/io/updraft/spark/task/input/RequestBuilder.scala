// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.input

import scala.collection.mutable.ArrayBuffer

import org.apache.arrow.vector.ipc.message.ArrowRecordBatch
import org.apache.arrow.vector.types.pojo.Schema
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection
import org.apache.spark.sql.updraft.SparkInternals
import org.apache.spark.sql.vectorized.{ColumnVector, ColumnarBatch}

import io.updraft.client.BatchGroups
import io.updraft.spark.columns.{BatchCut, BatchSize, ColumnBuilder, ColumnSet, FilledColumn}

/** Buffer that a feed fills with the rows of one request after another. */
trait RequestBuffer extends AutoCloseable {

  /** Return how many rows the request has so far. */
  def rows: Int

  /** Return how many rows may be appended before [[isFull]] must be called. */
  def room: Int

  def append(batch: ColumnarBatch, from: Int, rows: Int): Unit

  def append(row: InternalRow): Unit

  /** Return whether the request ends here. */
  def isFull: Boolean

  /** Return the request built so far; the buffer is empty afterwards. */
  def finish(inputFile: AnyRef): Request

  /** Set a limit on the rows of the next requests. */
  def setMostRows(rows: Int): Unit

  /** Release what is needed only to append rows, because the input has ended. */
  def inputEnded(): Unit = ()

  override def close(): Unit
}

/** Builder of one request after another. The caller appends rows, and [[BatchCut]] decides where a
  * request ends.
  */
abstract class RequestBuilder(spec: RequestSpec, partition: Int) extends RequestBuffer {
  private[this] val passedSchema = spec.passedSchema
  private[this] val child = spec.columnSet(spec.childTypes, spec.copied)
  private[this] val computed = spec.columnSet(spec.computed.map(_.dataType))
  private[this] val projection: UnsafeProjection =
    if (spec.computed.isEmpty) null else UnsafeProjection.create(spec.computed, spec.child)
  private[this] val cut = new BatchCut(spec.limits)
  private[this] val isInput: Int => Boolean = spec.slots.toSet
  private[this] val everyColumn: Int => Boolean = _ => true
  private[this] val ends = new ArrayBuffer[Int]
  private[this] var count = 0

  if (projection != null) projection.initialize(partition)

  /** Return the schema of the exchange's input. */
  def schema: Schema

  protected def request(columns: Seq[FilledColumn], rows: Int): ArrowRecordBatch

  /** Return whether replies have a row for each row or for each group. */
  protected def answers: Answers.Value = Answers.PerRow

  private def passThrough(columns: Seq[FilledColumn], rows: Int): Array[ColumnVector] =
    if (spec.passed.isEmpty) Array.empty
    else {
      val passed = spec.passedSlots.map(columns)
      ColumnSet.load(rows, passed, spec.passedTypes, passedSchema)
    }

  override def rows: Int = count

  /** Return how many groups have ended so far. */
  def groups: Int = ends.length

  override def room: Int = cut.room(count)

  override def append(batch: ColumnarBatch, from: Int, rows: Int): Unit = {
    child.append(batch, from, rows)
    if (projection != null) {
      var i = from
      while (i < from + rows) {
        computed.append(projection(batch.getRow(i)))
        i += 1
      }
    }
    count += rows
  }

  override def append(row: InternalRow): Unit = {
    child.append(row)
    if (projection != null) computed.append(projection(row))
    count += 1
  }

  /** Return the columns of a row, in the order of [[RequestSpec.columns]]. */
  def columns: Array[ColumnBuilder] = child.columns ++ computed.columns

  /** Set how many rows have been written into [[columns]]. */
  def hasRows(rows: Int): Unit = count = rows

  /** End a group. The group is the rows since the end of the last group. */
  def endGroup(): Unit = ends += count

  /** Return the size so far. */
  def size: BatchSize = {
    child.measure()
    computed.measure()
    val computedBytes = computed.byteCount(everyColumn)
    BatchSize(
      child.byteCount(isInput) + computedBytes,
      child.byteCount(everyColumn) + computedBytes
    )
  }

  override def isFull: Boolean = cut.endsAt(count, size)

  override def setMostRows(rows: Int): Unit = cut.setMostRows(rows)

  override def finish(inputFile: AnyRef): Request = {
    val rows = count
    val childColumns = child.finish()
    val columns = childColumns ++ computed.finish()
    val groups = new BatchGroups(ends.toArray, 0)
    ends.clear()
    count = 0
    cut.advance()
    try {
      val replyRows = if (answers == Answers.PerGroup) groups.ends.length else rows
      val kept = RetainedRows(replyRows, replyRows, passThrough(childColumns, rows), inputFile)
      try Request(request(columns, rows), kept, groups)
      catch {
        case e: Throwable =>
          kept.close()
          throw e
      }
    } finally columns.foreach(_.close())
  }

  override def close(): Unit = {
    child.close()
    computed.close()
  }
}

/** Rows of a reply: one for each row of the request, or one for each group. */
object Answers extends Enumeration {
  val PerRow, PerGroup = Value
}

object RequestBuilder {

  /** Builder of requests with a column for each argument. */
  final class OfArguments(
      spec: RequestSpec,
      partition: Int,
      override protected val answers: Answers.Value = Answers.PerRow
  ) extends RequestBuilder(spec, partition) {

    override val schema: Schema = spec.inputSchema

    override protected def request(columns: Seq[FilledColumn], rows: Int): ArrowRecordBatch =
      ColumnSet.recordBatch(rows, spec.slots.map(columns))
  }

  /** Builder of requests for the map family: one struct column that holds the row. */
  final class OfRows(spec: RequestSpec, rowSchema: Schema, partition: Int)
      extends RequestBuilder(spec, partition) {

    override val schema: Schema = SparkInternals.rowSchema(rowSchema)

    override protected def request(columns: Seq[FilledColumn], rows: Int): ArrowRecordBatch =
      ColumnSet.structBatch(rows, columns)
  }

  /** Builder of requests for a function over groups. All columns are sent; no column stays in the
    * executor.
    */
  final class OfColumns(spec: RequestSpec, override val schema: Schema, partition: Int)
      extends RequestBuilder(spec, partition) {

    override protected def request(columns: Seq[FilledColumn], rows: Int): ArrowRecordBatch =
      ColumnSet.recordBatch(rows, columns)
  }
}
