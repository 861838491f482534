// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.columns

import org.apache.arrow.vector.ipc.message.ArrowFieldNode
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters
import org.apache.spark.sql.execution.vectorized.WritableColumnVector
import org.apache.spark.sql.vectorized.ColumnVector
import org.apache.spark.unsafe.Platform

/** Builder of columns whose values take `width` bytes each; subclasses know the type. */
private[columns] abstract class FixedWidthBuilder(width: Int) extends ColumnBuilder {
  private[this] val validity = new ValidityBits
  private[this] val data = new GrowableBuffer
  private[this] var rows = 0

  /** Copy a range to `address`. Either the range has no nulls, or the source allows reading values
    * at null positions.
    */
  protected def copyRange(source: ColumnVector, from: Int, count: Int, address: Long): Unit

  /** Copy one non-null value to `address`. */
  protected def copyValue(row: SpecializedGetters, ordinal: Int, address: Long): Unit

  /** Copy one non-null value to `address`. */
  protected def copyValue(source: ColumnVector, rowId: Int, address: Long): Unit

  override def append(source: ColumnVector, from: Int, count: Int): Unit = {
    data.reserve((rows + count).toLong * width, rows.toLong * width)
    val address = data.address + rows.toLong * width
    val hasNull = source.hasNull
    val arrow = ArrowBuffers.of(source)
    if (arrow != null && arrow.hasFixedWidth(width)) {
      val start = arrow.data + from.toLong * width
      Platform.copyMemory(null, start, null, address, count.toLong * width)
      if (hasNull) arrow.foreachNull(from, count) { i =>
        validity.setNull(rows + i)
        // Erase the value at the null position, because the function must not see this value.
        Platform.setMemory(address + i.toLong * width, 0, width.toLong)
      }
    } else {
      source match {
        case _: WritableColumnVector => copyRange(source, from, count, address)
        case _ if !hasNull => copyRange(source, from, count, address)
        case _ => copyValid(source, from, count, address)
      }
      if (hasNull) validity.setNulls(source, from, count, rows)
    }
    rows += count
  }

  private def copyValid(source: ColumnVector, from: Int, count: Int, address: Long): Unit = {
    Platform.setMemory(address, 0, count.toLong * width)
    var i = 0
    while (i < count) {
      if (!source.isNullAt(from + i)) copyValue(source, from + i, address + i.toLong * width)
      i += 1
    }
  }

  override def append(row: SpecializedGetters, ordinal: Int): Unit =
    if (row.isNullAt(ordinal)) putNull() else copyValue(row, ordinal, addRow())

  override def putNull(): Unit = {
    validity.setNull(rows)
    Platform.setMemory(addRow(), 0, width.toLong)
  }

  /** Add a row. Return the address of its value, which the caller writes. */
  protected final def addRow(): Long = {
    val used = rows.toLong * width
    data.reserve(used + width, used)
    rows += 1
    data.address + used
  }

  override def append(copies: RowCopies, ordinal: Int): Unit = {
    val used = rows.toLong * width
    data.reserve(used + copies.count.toLong * width, used)
    copyColumn(copies, ordinal, data.address + used)
    if (copies.hasNull(ordinal)) validity.setNulls(copies, ordinal, rows)
    rows += copies.count
  }

  /** Copy a column of all rows to `address`; the bytes at null positions are arbitrary. */
  protected def copyColumn(copies: RowCopies, ordinal: Int, address: Long): Unit =
    copies.copyColumn(ordinal, width, address)

  override def byteCount: Long = rows.toLong * width

  override def finish(): FilledColumn = {
    val node = new ArrowFieldNode(rows.toLong, validity.nullCount.toLong)
    val column =
      new FilledColumn(Array(node), Array(validity.finish(rows), data.finish(rows.toLong * width)))
    rows = 0
    column
  }

  override def close(): Unit = {
    validity.close()
    data.close()
    rows = 0
  }
}
