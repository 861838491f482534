// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.output

import java.io.ByteArrayOutputStream
import java.util.ArrayDeque

import scala.collection.mutable.ArrayBuffer

import org.apache.arrow.vector.types.pojo.Schema
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.updraft.PickledRows
import org.apache.spark.sql.vectorized.ColumnVector

import io.updraft.client.Reply
import io.updraft.spark.columns.ColumnSet
import io.updraft.spark.task.input.{RequestSpec, RetainedRows}

/** Rows pickled by a table function, each joined to its input row.
  *
  * A value of a reply is the pickled output of one input row, or a piece of such an output. An
  * output may have any number of rows. The rows are returned in batches of about `batchBytes`.
  */
final class PickledTableResults(rowType: StructType, spec: RequestSpec, batchBytes: Long)
    extends Results {
  private[this] val answered = new AnsweredRows
  private[this] val types = rowType.map(_.dataType)
  private[this] val rows = spec.columnSet(types)
  private[this] val outputs = new PickledRows.Outputs(rowType)
  private[this] val nullRow = new GenericInternalRow(types.length)
  private[this] val pieces = new ByteArrayOutputStream

  /** Return whether the function may run without input. The function may not if columns stay in the
    * executor, because there would be no row to which its output could be joined.
    */
  override def needNoInput: Boolean = spec.passed.isEmpty

  override def of(
      reply: Reply,
      waiting: ArrayDeque[RetainedRows],
      schema: Schema
  ): Iterator[ResultBatch] = {
    val pickles = complete(reply, schema)
    answered.beginReply(waiting)
    batches(pickles.iterator.flatMap { pickle =>
      val from = answered.beginOutput()
      answered.endOutput()
      outputs.of(pickle).map(row => (from, if (row == null) nullRow else row))
    })
  }

  /** Return the outputs that end in a reply. The piece after the last end waits for the next reply.
    */
  private def complete(reply: Reply, schema: Schema): Seq[Array[Byte]] = {
    val values = ColumnSet.loadUntyped(reply.batch(), schema)
    try {
      val pickles = ArrayBuffer.empty[Array[Byte]]
      var from = 0
      reply.rowEnds().foreach { end =>
        append(values.head, from, end)
        pickles += pieces.toByteArray
        pieces.reset()
        from = end
      }
      append(values.head, from, reply.rows())
      pickles.toSeq
    } finally values.foreach(_.close())
  }

  private def append(values: ColumnVector, from: Int, until: Int): Unit =
    (from until until).foreach(i => pieces.writeBytes(values.getBinary(i)))

  /** Return the outputs in batches. Each batch belongs to the rows of one file. */
  private def batches(outputs: Iterator[(Int, InternalRow)]): Iterator[ResultBatch] =
    new Iterator[ResultBatch] {
      private[this] val joined = outputs.buffered

      override def hasNext: Boolean = joined.hasNext

      override def next(): ResultBatch = {
        val from = Array.newBuilder[Int]
        var count = 0
        val file = answered.fileOf(joined.head._1)
        while (joined.hasNext && answered.fileOf(joined.head._1).eq(file) && !isFull(count)) {
          val (row, values) = joined.next()
          from += row
          rows.append(values)
          count += 1
        }
        batch(from.result(), file)
      }
    }

  private def isFull(count: Int): Boolean =
    count % PickledTableResults.MeasuredRows == 0 && count > 0 && {
      rows.measure()
      rows.byteCount(_ => true) >= batchBytes
    }

  private def batch(from: Array[Int], file: AnyRef): ResultBatch = ResultBatch(
    from.length,
    answered.columns(from) ++ rows.load(from.length),
    file
  )

  /** Accept unanswered requests: a function may skip the rest of its input. */
  override def ended(waiting: ArrayDeque[RetainedRows]): Unit = ()

  override def close(): Unit = {
    rows.close()
    answered.close()
  }
}

object PickledTableResults {

  /** Rows between two checks of a batch's size. */
  private val MeasuredRows = 64
}
