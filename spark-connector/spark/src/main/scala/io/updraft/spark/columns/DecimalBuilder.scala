// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.columns

import java.math.BigInteger

import org.apache.spark.sql.catalyst.expressions.{SpecializedGetters, UnsafeRow}
import org.apache.spark.sql.execution.vectorized.WritableColumnVector
import org.apache.spark.sql.types.{Decimal, DecimalType}
import org.apache.spark.sql.vectorized.ColumnVector
import org.apache.spark.unsafe.Platform

/** Builder that writes decimals as Arrow's 128-bit little-endian integers. */
private[columns] final class DecimalBuilder(dataType: DecimalType)
    extends FixedWidthBuilder(DecimalBuilder.Width) {
  private[this] val precision = dataType.precision
  private[this] val scale = dataType.scale
  private[this] val isInt = precision <= Decimal.MAX_INT_DIGITS
  private[this] val isLong = precision <= Decimal.MAX_LONG_DIGITS

  override protected def copyRange(
      source: ColumnVector,
      from: Int,
      count: Int,
      address: Long
  ): Unit = source match {
    case _: WritableColumnVector if isInt =>
      val values = source.getInts(from, count)
      var i = 0
      while (i < count) {
        putLong(values(i).toLong, address + i.toLong * DecimalBuilder.Width)
        i += 1
      }
    case _: WritableColumnVector if isLong =>
      val values = source.getLongs(from, count)
      var i = 0
      while (i < count) {
        putLong(values(i), address + i.toLong * DecimalBuilder.Width)
        i += 1
      }
    case _ =>
      val hasNull = source.hasNull
      var i = 0
      while (i < count) {
        val target = address + i.toLong * DecimalBuilder.Width
        if (hasNull && source.isNullAt(from + i)) putLong(0L, target)
        else copyValue(source, from + i, target)
        i += 1
      }
  }

  /** Append a value. */
  def put(value: Decimal): Unit = put(value, addRow())

  override protected def copyValue(row: SpecializedGetters, ordinal: Int, address: Long): Unit =
    row match {
      case unsafe: UnsafeRow if isLong => putLong(unsafe.getLong(ordinal), address)
      case _ => put(row.getDecimal(ordinal, precision, scale), address)
    }

  override protected def copyValue(source: ColumnVector, rowId: Int, address: Long): Unit =
    put(source.getDecimal(rowId, precision, scale), address)

  override protected def copyColumn(copies: RowCopies, ordinal: Int, address: Long): Unit = {
    var i = 0
    while (i < copies.count) {
      val target = address + i.toLong * DecimalBuilder.Width
      if (isLong) putLong(copies.word(i, ordinal), target)
      else if (copies.isNullAt(i, ordinal)) putLong(0L, target)
      else copyValue(copies.row(i), ordinal, target)
      i += 1
    }
  }

  private def put(value: Decimal, address: Long): Unit =
    if (isLong) putLong(value.toUnscaledLong, address)
    else putBig(value.toJavaBigDecimal.unscaledValue, address)

  private def putLong(unscaled: Long, address: Long): Unit = {
    Platform.putLong(null, address, unscaled)
    Platform.putLong(null, address + 8, unscaled >> 63)
  }

  private def putBig(unscaled: BigInteger, address: Long): Unit = {
    Platform.putLong(null, address, unscaled.longValue)
    Platform.putLong(null, address + 8, unscaled.shiftRight(64).longValue)
  }
}

private object DecimalBuilder {
  val Width = 16
}
