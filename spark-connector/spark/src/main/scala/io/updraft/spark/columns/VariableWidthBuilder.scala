// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.columns

import org.apache.arrow.vector.ipc.message.ArrowFieldNode
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters
import org.apache.spark.sql.execution.vectorized.{OffHeapColumnVector, WritableColumnVector}
import org.apache.spark.sql.vectorized.ColumnVector
import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.types.UTF8String

/** Builder of strings and binaries; `offsetWidth` is 4, or 8 for Arrow's large types. */
abstract class VariableWidthBuilder(offsetWidth: Int) extends ColumnBuilder {
  private[this] val validity = new ValidityBits
  private[this] val offsets = new GrowableBuffer
  private[this] val data = new GrowableBuffer
  private[this] var rows = 0
  private[this] var dataBytes = 0L

  /** Append one non-null value with [[putBytes]]. */
  protected def putValue(source: ColumnVector, rowId: Int): Unit

  /** Append one non-null value with [[putBytes]]. */
  protected def putValue(row: SpecializedGetters, ordinal: Int): Unit

  override def append(source: ColumnVector, from: Int, count: Int): Unit = {
    val hasNull = source.hasNull
    source match {
      case plain: WritableColumnVector if !hasNull && isContiguous(plain, from, count) =>
        putContiguous(plain, from, count)
      case _ =>
        val arrow = ArrowBuffers.of(source)
        if (arrow != null && arrow.hasOffsets && !(hasNull && hidesBytes(arrow, from, count)))
          putArrow(arrow, from, count, hasNull)
        else putEach(source, from, count, hasNull)
    }
  }

  /** Return whether the data holds bytes at a null position. The function must not see such bytes.
    */
  private def hidesBytes(source: ArrowBuffers, from: Int, count: Int): Boolean = {
    var hidden = 0L
    source.foreachNull(from, count) { i =>
      hidden |= source.offset(from + i + 1) - source.offset(from + i)
    }
    hidden != 0
  }

  private def putArrow(source: ArrowBuffers, from: Int, count: Int, hasNull: Boolean): Unit =
    if (count > 0) {
      val start = source.offset(from)
      var last = start
      var increases = true
      reserveOffsets(count)
      var i = 0
      while (i < count) {
        putOffset(rows + i, dataBytes + (last - start))
        val next = source.offset(from + i + 1)
        increases &= next >= last
        last = next
        i += 1
      }
      // Reading outside of the data would crash the JVM.
      if (!increases || start < 0 || last > source.dataBytes) throw new IllegalStateException(
        "the offsets of a column of strings or binaries are not in order, or not in its data"
      )
      if (hasNull) source.foreachNull(from, count)(row => validity.setNull(rows + row))
      rows += count
      putData(null, source.data + start, last - start)
    }

  private def putEach(source: ColumnVector, from: Int, count: Int, hasNull: Boolean): Unit = {
    var i = from
    while (i < from + count) {
      if (hasNull && source.isNullAt(i)) putNull() else putValue(source, i)
      i += 1
    }
  }

  /** Return whether the values are contiguous, as after a read of plain-encoded pages. */
  private def isContiguous(source: WritableColumnVector, from: Int, count: Int): Boolean =
    !source.hasDictionary && {
      var end = source.getArrayOffset(from)
      var i = from
      while (i < from + count && source.getArrayOffset(i) == end) {
        end += source.getArrayLength(i)
        i += 1
      }
      i == from + count
    }

  private def putContiguous(source: WritableColumnVector, from: Int, count: Int): Unit = {
    val start = source.getArrayOffset(from)
    val last = from + count - 1
    val length = source.getArrayOffset(last) + source.getArrayLength(last) - start
    reserveOffsets(count)
    var i = 0
    while (i < count) {
      putOffset(rows + i, dataBytes + (source.getArrayOffset(from + i) - start))
      i += 1
    }
    rows += count
    if (length > 0) source.arrayData() match {
      case plain: OffHeapColumnVector =>
        putData(null, plain.valuesNativeAddress() + start, length.toLong)
      case other =>
        val bytes = other.getByteBuffer(start, length)
        val offset = Platform.BYTE_ARRAY_OFFSET.toLong + bytes.arrayOffset() + bytes.position()
        putData(bytes.array(), offset, length.toLong)
    }
  }

  override def append(row: SpecializedGetters, ordinal: Int): Unit =
    if (row.isNullAt(ordinal)) putNull() else putValue(row, ordinal)

  override def append(copies: RowCopies, ordinal: Int): Unit = {
    val count = copies.count
    val hasNull = copies.hasNull(ordinal)
    if (hasNull) validity.setNulls(copies, ordinal, rows)
    reserveOffsets(count)
    var i = 0
    while (i < count) {
      putOffset(rows + i, dataBytes)
      if (!hasNull || !copies.isNullAt(i, ordinal)) {
        val place = copies.word(i, ordinal)
        val length = place.toInt
        val end = endAfter(length.toLong)
        // The copy works in whole words, so it may write up to seven bytes past the end.
        data.reserve(end + 8, dataBytes)
        copies.copyBytes(i, (place >>> 32).toInt, length, data.address + dataBytes)
        dataBytes = end
      }
      i += 1
    }
    rows += count
  }

  override def putNull(): Unit = {
    validity.setNull(rows)
    reserveOffsets(1)
    putOffset(rows, dataBytes)
    rows += 1
  }

  protected final def putBytes(base: AnyRef, offset: Long, length: Int): Unit = {
    reserveOffsets(1)
    putOffset(rows, dataBytes)
    rows += 1
    putData(base, offset, length.toLong)
  }

  private def putData(base: AnyRef, offset: Long, length: Long): Unit = {
    val end = endAfter(length)
    data.reserve(end, dataBytes)
    Platform.copyMemory(base, offset, null, data.address + dataBytes, length)
    dataBytes = end
  }

  private def endAfter(length: Long): Long = {
    val end = dataBytes + length
    if (offsetWidth == 4 && end > Int.MaxValue) throw new ArithmeticException(
      s"a batch with $rows rows holds $end bytes in one column, more than an Arrow string column can hold"
    )
    end
  }

  /** Reserve room for the offsets of `count` more rows, and for the end of the last value. */
  private def reserveOffsets(count: Int): Unit =
    offsets.reserve((rows + count + 1).toLong * offsetWidth, rows.toLong * offsetWidth)

  private def putOffset(row: Int, value: Long): Unit =
    if (offsetWidth == 4) Platform.putInt(null, offsets.address + row * 4L, value.toInt)
    else Platform.putLong(null, offsets.address + row * 8L, value)

  override def byteCount: Long = dataBytes + rows.toLong * offsetWidth

  override def finish(): FilledColumn = {
    reserveOffsets(0)
    putOffset(rows, dataBytes)
    val node = new ArrowFieldNode(rows.toLong, validity.nullCount.toLong)
    val column = new FilledColumn(
      Array(node),
      Array(
        validity.finish(rows),
        offsets.finish((rows + 1L) * offsetWidth),
        data.finish(dataBytes)
      )
    )
    rows = 0
    dataBytes = 0L
    column
  }

  override def close(): Unit = {
    validity.close()
    offsets.close()
    data.close()
    rows = 0
    dataBytes = 0L
  }
}

private[columns] final class StringBuilder(offsetWidth: Int)
    extends VariableWidthBuilder(offsetWidth) {

  override protected def putValue(source: ColumnVector, rowId: Int): Unit =
    put(source.getUTF8String(rowId))

  override protected def putValue(row: SpecializedGetters, ordinal: Int): Unit =
    put(row.getUTF8String(ordinal))

  /** Append a value. */
  def put(value: UTF8String): Unit =
    putBytes(value.getBaseObject, value.getBaseOffset, value.numBytes())
}

final class BinaryBuilder(offsetWidth: Int)
    extends VariableWidthBuilder(offsetWidth) {

  override protected def putValue(source: ColumnVector, rowId: Int): Unit =
    put(source.getBinary(rowId))

  override protected def putValue(row: SpecializedGetters, ordinal: Int): Unit =
    put(row.getBinary(ordinal))

  /** Append a value. */
  def put(value: Array[Byte]): Unit =
    putBytes(value, Platform.BYTE_ARRAY_OFFSET.toLong, value.length)
}
