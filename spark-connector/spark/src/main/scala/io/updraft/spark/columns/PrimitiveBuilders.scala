// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.columns

import org.apache.spark.sql.catalyst.expressions.SpecializedGetters
import org.apache.spark.sql.execution.vectorized.OffHeapColumnVector
import org.apache.spark.sql.vectorized.ColumnVector
import org.apache.spark.unsafe.Platform

/* Each type has a class of its own, because a type parameter would box every value. */

/** Builder of columns of one of Java's primitive types; `arrayOffset` is the offset of the first
  * value in a Java array of that type.
  */
private[columns] abstract class PrimitiveBuilder(width: Int, arrayOffset: Int)
    extends FixedWidthBuilder(width) {

  /** Return a range of a vector as a Java array. */
  protected def values(source: ColumnVector, from: Int, count: Int): AnyRef

  override protected def copyRange(
      source: ColumnVector,
      from: Int,
      count: Int,
      address: Long
  ): Unit = source match {
    case plain: OffHeapColumnVector if !plain.hasDictionary =>
      val start = plain.valuesNativeAddress() + from.toLong * width
      Platform.copyMemory(null, start, null, address, count.toLong * width)
    case _ =>
      val array = values(source, from, count)
      Platform.copyMemory(array, arrayOffset.toLong, null, address, count.toLong * width)
  }
}

private[columns] final class ByteBuilder
    extends PrimitiveBuilder(width = 1, Platform.BYTE_ARRAY_OFFSET) {

  override protected def values(source: ColumnVector, from: Int, count: Int): Array[Byte] =
    source.getBytes(from, count)

  /** Append a value. */
  def put(value: Byte): Unit = Platform.putByte(null, addRow(), value)

  override protected def copyValue(row: SpecializedGetters, ordinal: Int, address: Long): Unit =
    Platform.putByte(null, address, row.getByte(ordinal))

  override protected def copyValue(source: ColumnVector, rowId: Int, address: Long): Unit =
    Platform.putByte(null, address, source.getByte(rowId))
}

private[columns] final class ShortBuilder
    extends PrimitiveBuilder(width = 2, Platform.SHORT_ARRAY_OFFSET) {

  override protected def values(source: ColumnVector, from: Int, count: Int): Array[Short] =
    source.getShorts(from, count)

  /** Append a value. */
  def put(value: Short): Unit = Platform.putShort(null, addRow(), value)

  override protected def copyValue(row: SpecializedGetters, ordinal: Int, address: Long): Unit =
    Platform.putShort(null, address, row.getShort(ordinal))

  override protected def copyValue(source: ColumnVector, rowId: Int, address: Long): Unit =
    Platform.putShort(null, address, source.getShort(rowId))
}

private[columns] final class IntBuilder
    extends PrimitiveBuilder(width = 4, Platform.INT_ARRAY_OFFSET) {

  override protected def values(source: ColumnVector, from: Int, count: Int): Array[Int] =
    source.getInts(from, count)

  /** Append a value. */
  def put(value: Int): Unit = Platform.putInt(null, addRow(), value)

  override protected def copyValue(row: SpecializedGetters, ordinal: Int, address: Long): Unit =
    Platform.putInt(null, address, row.getInt(ordinal))

  override protected def copyValue(source: ColumnVector, rowId: Int, address: Long): Unit =
    Platform.putInt(null, address, source.getInt(rowId))
}

private[columns] final class LongBuilder
    extends PrimitiveBuilder(width = 8, Platform.LONG_ARRAY_OFFSET) {

  override protected def values(source: ColumnVector, from: Int, count: Int): Array[Long] =
    source.getLongs(from, count)

  /** Append a value. */
  def put(value: Long): Unit = Platform.putLong(null, addRow(), value)

  override protected def copyValue(row: SpecializedGetters, ordinal: Int, address: Long): Unit =
    Platform.putLong(null, address, row.getLong(ordinal))

  override protected def copyValue(source: ColumnVector, rowId: Int, address: Long): Unit =
    Platform.putLong(null, address, source.getLong(rowId))
}

private[columns] final class FloatBuilder
    extends PrimitiveBuilder(width = 4, Platform.FLOAT_ARRAY_OFFSET) {

  override protected def values(source: ColumnVector, from: Int, count: Int): Array[Float] =
    source.getFloats(from, count)

  /** Append a value. */
  def put(value: Float): Unit = Platform.putFloat(null, addRow(), value)

  override protected def copyValue(row: SpecializedGetters, ordinal: Int, address: Long): Unit =
    Platform.putFloat(null, address, row.getFloat(ordinal))

  override protected def copyValue(source: ColumnVector, rowId: Int, address: Long): Unit =
    Platform.putFloat(null, address, source.getFloat(rowId))
}

private[columns] final class DoubleBuilder
    extends PrimitiveBuilder(width = 8, Platform.DOUBLE_ARRAY_OFFSET) {

  override protected def values(source: ColumnVector, from: Int, count: Int): Array[Double] =
    source.getDoubles(from, count)

  /** Append a value. */
  def put(value: Double): Unit = Platform.putDouble(null, addRow(), value)

  override protected def copyValue(row: SpecializedGetters, ordinal: Int, address: Long): Unit =
    Platform.putDouble(null, address, row.getDouble(ordinal))

  override protected def copyValue(source: ColumnVector, rowId: Int, address: Long): Unit =
    Platform.putDouble(null, address, source.getDouble(rowId))
}
