// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.columns

import org.apache.arrow.vector.ipc.message.ArrowFieldNode
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters
import org.apache.spark.sql.vectorized.ColumnVector
import org.apache.spark.unsafe.Platform

/** Builder that packs booleans eight to a byte. */
private[columns] final class BooleanBuilder extends ColumnBuilder {
  private[this] val validity = new ValidityBits
  private[this] val data = new GrowableBuffer
  private[this] var rows = 0

  override def append(source: ColumnVector, from: Int, count: Int): Unit = {
    val hasNull = source.hasNull
    var i = 0
    while (i < count) {
      put(!(hasNull && source.isNullAt(from + i)) && source.getBoolean(from + i))
      i += 1
    }
    if (hasNull) validity.setNulls(source, from, count, rows - count)
  }

  override def append(row: SpecializedGetters, ordinal: Int): Unit =
    if (row.isNullAt(ordinal)) putNull() else put(row.getBoolean(ordinal))

  override def putNull(): Unit = {
    validity.setNull(rows)
    put(false)
  }

  override def append(copies: RowCopies, ordinal: Int): Unit = {
    if (copies.hasNull(ordinal)) validity.setNulls(copies, ordinal, rows)
    var i = 0
    while (i < copies.count) {
      put((copies.word(i, ordinal) & 1) != 0)
      i += 1
    }
  }

  /** Append a value. */
  def put(value: Boolean): Unit = {
    val byteIndex = rows >> 3
    val bit = rows & 7
    if (bit == 0) data.reserve(byteIndex + 1L, byteIndex.toLong)
    val address = data.address + byteIndex
    val before = if (bit == 0) 0 else Platform.getByte(null, address).toInt
    Platform.putByte(null, address, (before | (if (value) 1 << bit else 0)).toByte)
    rows += 1
  }

  override def byteCount: Long = ((rows + 7) >> 3).toLong

  override def finish(): FilledColumn = {
    val node = new ArrowFieldNode(rows.toLong, validity.nullCount.toLong)
    val column =
      new FilledColumn(Array(node), Array(validity.finish(rows), data.finish(byteCount)))
    rows = 0
    column
  }

  override def close(): Unit = {
    validity.close()
    data.close()
    rows = 0
  }
}
