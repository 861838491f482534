// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.columns

import org.apache.spark.sql.types.Decimal
import org.apache.spark.sql.vectorized.{ColumnVector, ColumnarArray, ColumnarMap}
import org.apache.spark.unsafe.types.UTF8String

/** View of another column's rows, in any order and with repetition. The view copies no values. Row
  * `i` is row `rows(i)` of `source`. The owner of `source` closes it.
  */
final class SelectedColumn(source: ColumnVector, rows: Array[Int])
    extends ColumnVector(source.dataType()) {

  override def close(): Unit = ()

  override def hasNull: Boolean = source.hasNull

  /** Return an upper bound: Spark only checks whether the number is 0. */
  override def numNulls(): Int = if (hasNull) rows.length else 0

  override def isNullAt(rowId: Int): Boolean = source.isNullAt(rows(rowId))
  override def getBoolean(rowId: Int): Boolean = source.getBoolean(rows(rowId))
  override def getByte(rowId: Int): Byte = source.getByte(rows(rowId))
  override def getShort(rowId: Int): Short = source.getShort(rows(rowId))
  override def getInt(rowId: Int): Int = source.getInt(rows(rowId))
  override def getLong(rowId: Int): Long = source.getLong(rows(rowId))
  override def getFloat(rowId: Int): Float = source.getFloat(rows(rowId))
  override def getDouble(rowId: Int): Double = source.getDouble(rows(rowId))
  override def getArray(rowId: Int): ColumnarArray = source.getArray(rows(rowId))
  override def getMap(rowId: Int): ColumnarMap = source.getMap(rows(rowId))
  override def getUTF8String(rowId: Int): UTF8String = source.getUTF8String(rows(rowId))
  override def getBinary(rowId: Int): Array[Byte] = source.getBinary(rows(rowId))

  override def getDecimal(rowId: Int, precision: Int, scale: Int): Decimal =
    source.getDecimal(rows(rowId), precision, scale)

  override def getChild(ordinal: Int): ColumnVector =
    new SelectedColumn(source.getChild(ordinal), rows)
}
