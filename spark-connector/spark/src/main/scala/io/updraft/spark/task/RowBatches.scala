// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.vectorized.{ColumnVector, ColumnarBatch}

import io.updraft.spark.columns.{BatchCut, BatchSize}
import io.updraft.spark.task.input.RequestSpec

/** Batches copied from rows. A batch is valid until the next batch is requested.
  *
  * @param spec
  *   types of the rows and limits of a batch
  * @param shown
  *   function that takes the copied columns and the number of rows, and returns the columns of the
  *   batch
  */
final class RowBatches(
    rows: Iterator[InternalRow],
    spec: RequestSpec,
    shown: (Array[ColumnVector], Int) => Array[ColumnVector],
    context: TaskContext
) extends Iterator[ColumnarBatch]
    with AutoCloseable {
  private[this] val builders = spec.columnSet(spec.childTypes)
  private[this] val cut = new BatchCut(spec.limits)
  private[this] var copied = Array.empty[ColumnVector]

  context.addTaskCompletionListener[Unit](_ => close())

  override def hasNext: Boolean = {
    val isThere = rows.hasNext
    if (!isThere) release()
    isThere
  }

  override def next(): ColumnarBatch = {
    if (!hasNext) throw new NoSuchElementException("no batch left")
    release()
    val count = fill()
    copied = builders.load(count)
    new ColumnarBatch(shown(copied, count), count)
  }

  private def fill(): Int = {
    var count = 0
    while (rows.hasNext && !cut.endsAt(count, sizeInBytes)) {
      val end = count + cut.room(count)
      while (count < end && rows.hasNext) {
        builders.append(rows.next())
        count += 1
      }
    }
    cut.advance()
    count
  }

  private def sizeInBytes: BatchSize = {
    builders.measure()
    val bytes = builders.byteCount(_ => true)
    BatchSize(bytes, bytes)
  }

  private def release(): Unit = {
    copied.foreach(_.close())
    copied = Array.empty
  }

  override def close(): Unit = {
    release()
    builders.close()
  }
}
