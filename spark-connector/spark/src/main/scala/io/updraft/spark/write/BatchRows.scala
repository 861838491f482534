// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write

import org.apache.spark.sql.catalyst.{InternalRow, ProjectingInternalRow}
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.vectorized.{ColumnarBatch, ColumnarBatchRow}

/** Row inside a batch. [[RowFile]] copies whole ranges of the batch; all other code, such as
  * Spark's own writers, reads this object as a row.
  *
  * @param ordinals
  *   position of each of the row's columns in the batches
  */
final class BatchRow(schema: StructType, ordinals: Array[Int])
    extends ProjectingInternalRow(schema, ordinals.indices) {
  private[this] var view: ColumnarBatchRow = _
  private[this] var source: ColumnarBatch = _

  /** Return the row's batch with only the row's columns, which the batch's owner closes. */
  def batch: ColumnarBatch = source

  def index: Int = view.rowId

  /** Return whether this is the batch's last row: the batch may no longer exist when the next row
    * is requested.
    */
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

/** Rows of batches, one after the other; every row is the same object. */
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
