// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write

import org.apache.spark.sql.catalyst.{InternalRow, ProjectingInternalRow}
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.vectorized.{ColumnarBatch, ColumnarBatchRow}

/** A row that lies in a batch. [[RowFile]] copies whole ranges of the batch; everybody else reads
  * it as a row, Spark's own writers included.
  *
  * @param ordinals
  *   where each of its columns is in the batches
  */
final class BatchRow(schema: StructType, ordinals: Array[Int])
    extends ProjectingInternalRow(schema, ordinals.indices) {
  private[this] var view: ColumnarBatchRow = _
  private[this] var source: ColumnarBatch = _

  /** Just the columns of this row, which stay their owner's. */
  def batch: ColumnarBatch = source

  def index: Int = view.rowId

  /** Whether the batch may be gone when the next row is asked for. */
  def isLast: Boolean = view.rowId == source.numRows() - 1

  private[write] def show(next: ColumnarBatch): Unit = {
    val columns = ordinals.map(next.column)
    source = new ColumnarBatch(columns, next.numRows())
    view = new ColumnarBatchRow(columns)
    view.rowId = -1
    project(view)
  }

  private[write] def advance(): Unit = view.rowId += 1
}

/** The rows of batches, one after the other; all are the same object. */
final class BatchRows(batches: Iterator[ColumnarBatch], row: BatchRow)
    extends Iterator[InternalRow] {
  private[this] var left = 0

  override def hasNext: Boolean = {
    while (left == 0 && batches.hasNext) {
      val batch = batches.next()
      row.show(batch)
      left = batch.numRows()
    }
    left > 0
  }

  override def next(): InternalRow = {
    if (!hasNext) throw new NoSuchElementException("no more batches")
    left -= 1
    row.advance()
    row
  }
}
