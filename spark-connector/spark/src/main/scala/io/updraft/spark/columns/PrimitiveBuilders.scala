// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.columns

import org.apache.arrow.memory.BufferAllocator
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters
import org.apache.spark.sql.vectorized.ColumnVector
import org.apache.spark.unsafe.Platform

/* One class per width and not one generic class: a type parameter would box every value. */

private[columns] final class ByteBuilder(allocator: BufferAllocator)
    extends FixedWidthBuilder(allocator, width = 1) {

  override protected def copyRange(
      source: ColumnVector,
      from: Int,
      count: Int,
      address: Long
  ): Unit =
    Platform.copyMemory(
      source.getBytes(from, count),
      Platform.BYTE_ARRAY_OFFSET.toLong,
      null,
      address,
      count.toLong * 1
    )

  override protected def copyValue(row: SpecializedGetters, ordinal: Int, address: Long): Unit =
    Platform.putByte(null, address, row.getByte(ordinal))

  override protected def copyValue(source: ColumnVector, rowId: Int, address: Long): Unit =
    Platform.putByte(null, address, source.getByte(rowId))
}

private[columns] final class ShortBuilder(allocator: BufferAllocator)
    extends FixedWidthBuilder(allocator, width = 2) {

  override protected def copyRange(
      source: ColumnVector,
      from: Int,
      count: Int,
      address: Long
  ): Unit =
    Platform.copyMemory(
      source.getShorts(from, count),
      Platform.SHORT_ARRAY_OFFSET.toLong,
      null,
      address,
      count.toLong * 2
    )

  override protected def copyValue(row: SpecializedGetters, ordinal: Int, address: Long): Unit =
    Platform.putShort(null, address, row.getShort(ordinal))

  override protected def copyValue(source: ColumnVector, rowId: Int, address: Long): Unit =
    Platform.putShort(null, address, source.getShort(rowId))
}

private[columns] final class IntBuilder(allocator: BufferAllocator)
    extends FixedWidthBuilder(allocator, width = 4) {

  override protected def copyRange(
      source: ColumnVector,
      from: Int,
      count: Int,
      address: Long
  ): Unit =
    Platform.copyMemory(
      source.getInts(from, count),
      Platform.INT_ARRAY_OFFSET.toLong,
      null,
      address,
      count.toLong * 4
    )

  override protected def copyValue(row: SpecializedGetters, ordinal: Int, address: Long): Unit =
    Platform.putInt(null, address, row.getInt(ordinal))

  override protected def copyValue(source: ColumnVector, rowId: Int, address: Long): Unit =
    Platform.putInt(null, address, source.getInt(rowId))
}

private[columns] final class LongBuilder(allocator: BufferAllocator)
    extends FixedWidthBuilder(allocator, width = 8) {

  override protected def copyRange(
      source: ColumnVector,
      from: Int,
      count: Int,
      address: Long
  ): Unit =
    Platform.copyMemory(
      source.getLongs(from, count),
      Platform.LONG_ARRAY_OFFSET.toLong,
      null,
      address,
      count.toLong * 8
    )

  override protected def copyValue(row: SpecializedGetters, ordinal: Int, address: Long): Unit =
    Platform.putLong(null, address, row.getLong(ordinal))

  override protected def copyValue(source: ColumnVector, rowId: Int, address: Long): Unit =
    Platform.putLong(null, address, source.getLong(rowId))
}

private[columns] final class FloatBuilder(allocator: BufferAllocator)
    extends FixedWidthBuilder(allocator, width = 4) {

  override protected def copyRange(
      source: ColumnVector,
      from: Int,
      count: Int,
      address: Long
  ): Unit =
    Platform.copyMemory(
      source.getFloats(from, count),
      Platform.FLOAT_ARRAY_OFFSET.toLong,
      null,
      address,
      count.toLong * 4
    )

  override protected def copyValue(row: SpecializedGetters, ordinal: Int, address: Long): Unit =
    Platform.putFloat(null, address, row.getFloat(ordinal))

  override protected def copyValue(source: ColumnVector, rowId: Int, address: Long): Unit =
    Platform.putFloat(null, address, source.getFloat(rowId))
}

private[columns] final class DoubleBuilder(allocator: BufferAllocator)
    extends FixedWidthBuilder(allocator, width = 8) {

  override protected def copyRange(
      source: ColumnVector,
      from: Int,
      count: Int,
      address: Long
  ): Unit =
    Platform.copyMemory(
      source.getDoubles(from, count),
      Platform.DOUBLE_ARRAY_OFFSET.toLong,
      null,
      address,
      count.toLong * 8
    )

  override protected def copyValue(row: SpecializedGetters, ordinal: Int, address: Long): Unit =
    Platform.putDouble(null, address, row.getDouble(ordinal))

  override protected def copyValue(source: ColumnVector, rowId: Int, address: Long): Unit =
    Platform.putDouble(null, address, source.getDouble(rowId))
}
