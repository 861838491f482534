// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.input

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.updraft.PickledRows
import org.apache.spark.sql.vectorized.{ColumnVector, ColumnarBatch}

import io.updraft.spark.columns.{BatchCut, BatchSize, BinaryBuilder, ColumnSet, FilledColumn}

/** Rows of a request as tuples of arguments, with the columns that stay in the executor. */
class TupleBuffer(spec: RequestSpec, partition: Int, sent: SentTuples) extends RequestBuffer {
  private[this] val passed = spec.columnSet(spec.passedTypes, spec.passed)
  private[this] val projection = UnsafeProjection.create(spec.inputs, spec.child)
  private[this] val cut = new BatchCut(spec.limits)
  private[this] val everyColumn: Int => Boolean = _ => true
  private[this] var count = 0

  projection.initialize(partition)

  override def rows: Int = count

  override def room: Int = cut.room(count)

  override def append(batch: ColumnarBatch, from: Int, rows: Int): Unit = {
    passed.append(batch, from, rows)
    var i = from
    while (i < from + rows) {
      take(projection(batch.getRow(i)))
      count += 1
      i += 1
    }
  }

  override def append(row: InternalRow): Unit = {
    passed.append(row)
    take(projection(row))
    count += 1
  }

  /** Accept the tuple of the next row. The tuple is valid only during this call. */
  protected def take(tuple: UnsafeRow): Unit = sent.append(tuple)

  override def isFull: Boolean = {
    passed.measure()
    val sentBytes = sent.bytes
    val held = sentBytes + passed.byteCount(everyColumn) + heldBytes
    cut.endsAt(count, BatchSize(sentBytes, held))
  }

  override def setMostRows(rows: Int): Unit = cut.setMostRows(rows)

  /** Return the bytes that stay in the executor in addition to the columns. */
  protected def heldBytes: Long = 0L

  override def finish(inputFile: AnyRef): Request = {
    val batch = sent.finish()
    try {
      val kept = retained(count, batch.values, passed.load(count), inputFile)
      try Request(ColumnSet.recordBatch(batch.values, batch.columns), kept)
      catch {
        case e: Throwable =>
          kept.close()
          throw e
      }
    } finally {
      batch.columns.foreach(_.close())
      count = 0
      cut.advance()
    }
  }

  protected def retained(
      rows: Int,
      values: Int,
      columns: Array[ColumnVector],
      inputFile: AnyRef
  ): RetainedRows = RetainedRows(rows, values, columns, inputFile)

  override def close(): Unit = {
    passed.close()
    sent.close()
  }
}

/** Tuples of a request, in the encoding for this kind of function. */
trait SentTuples extends AutoCloseable {

  /** Copy a tuple. */
  def append(tuple: UnsafeRow): Unit

  /** Return the bytes of the tuples so far. */
  def bytes: Long

  /** Return the tuples so far; this object is empty afterwards. */
  def finish(): SentBatch

  override def close(): Unit
}

/** Columns of a request; the receiver closes them. */
final case class SentBatch(values: Int, columns: Seq[FilledColumn])

object SentTuples {

  /** Tuples as columns. */
  final class OfColumns(spec: RequestSpec) extends SentTuples {
    private[this] val arguments = spec.columnSet(spec.inputs.map(_.dataType))
    private[this] val everyColumn: Int => Boolean = _ => true
    private[this] var count = 0

    override def append(tuple: UnsafeRow): Unit = {
      arguments.append(tuple)
      count += 1
    }

    override def bytes: Long = {
      arguments.measure()
      arguments.byteCount(everyColumn)
    }

    override def finish(): SentBatch = {
      val batch = SentBatch(count, arguments.finish())
      count = 0
      batch
    }

    override def close(): Unit = arguments.close()
  }

  /** Tuples as pickled lists. */
  final class OfPickles(spec: RequestSpec, pickling: Pickling) extends SentTuples {
    private[this] val tuples = new ArrayBuffer[InternalRow]
    private[this] var size = 0L

    override def append(tuple: UnsafeRow): Unit = {
      tuples += tuple.copy()
      size += tuple.getSizeInBytes
    }

    override def bytes: Long = size

    override def finish(): SentBatch = {
      val lists = new BinaryBuilder(offsetWidth = 4)
      try {
        var values = 0
        PickledRows
          .of(tuples.iterator, spec.inputType, pickling.listRows, pickling.binaryAsBytes)
          .foreach { list =>
            lists.put(list)
            values += 1
          }
        SentBatch(values, Seq(lists.finish()))
      } finally {
        lists.close()
        close()
      }
    }

    override def close(): Unit = {
      tuples.clear()
      size = 0L
    }
  }
}
