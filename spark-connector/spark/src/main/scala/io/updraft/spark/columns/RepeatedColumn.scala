// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.columns

import org.apache.spark.sql.types.Decimal
import org.apache.spark.sql.vectorized.{ColumnVector, ColumnarArray, ColumnarMap}
import org.apache.spark.unsafe.types.UTF8String

/** View of the values of several columns, in any order and with repetition. The view copies no
  * values.
  *
  * @param sources
  *   columns of one type; another object closes them
  * @param places
  *   place of each row's value, as [[RepeatedColumn.place]] returns it
  * @param release
  *   called when the view is closed, perhaps several times
  */
final class RepeatedColumn(
    sources: Array[ColumnVector],
    places: Array[Long],
    release: () => Unit
) extends ColumnVector(sources.head.dataType()) {
  private[this] val holdsNull = sources.exists(_.hasNull)
  private[this] var children = Array.empty[ColumnVector]

  @inline private def source(rowId: Int): ColumnVector = sources((places(rowId) >>> 32).toInt)
  @inline private def row(rowId: Int): Int = places(rowId).toInt

  override def close(): Unit = release()

  override def hasNull: Boolean = holdsNull

  /** Return an upper bound: Spark only checks whether the number is 0. */
  override def numNulls(): Int = if (holdsNull) places.length else 0

  override def isNullAt(rowId: Int): Boolean = holdsNull && source(rowId).isNullAt(row(rowId))
  override def getBoolean(rowId: Int): Boolean = source(rowId).getBoolean(row(rowId))
  override def getByte(rowId: Int): Byte = source(rowId).getByte(row(rowId))
  override def getShort(rowId: Int): Short = source(rowId).getShort(row(rowId))
  override def getInt(rowId: Int): Int = source(rowId).getInt(row(rowId))
  override def getLong(rowId: Int): Long = source(rowId).getLong(row(rowId))
  override def getFloat(rowId: Int): Float = source(rowId).getFloat(row(rowId))
  override def getDouble(rowId: Int): Double = source(rowId).getDouble(row(rowId))
  override def getArray(rowId: Int): ColumnarArray = source(rowId).getArray(row(rowId))
  override def getMap(rowId: Int): ColumnarMap = source(rowId).getMap(row(rowId))
  override def getUTF8String(rowId: Int): UTF8String = source(rowId).getUTF8String(row(rowId))
  override def getBinary(rowId: Int): Array[Byte] = source(rowId).getBinary(row(rowId))

  override def getDecimal(rowId: Int, precision: Int, scale: Int): Decimal =
    source(rowId).getDecimal(row(rowId), precision, scale)

  /** Return a column for one field of the structs. The column is created once, because Spark
    * requests it for every value.
    */
  override def getChild(ordinal: Int): ColumnVector = {
    if (ordinal >= children.length) children = children.padTo(ordinal + 1, null)
    if (children(ordinal) == null)
      children(ordinal) = new RepeatedColumn(sources.map(_.getChild(ordinal)), places, () => ())
    children(ordinal)
  }
}

object RepeatedColumn {

  /** Return the place of row `row` of source `source`. */
  def place(source: Int, row: Int): Long = source.toLong << 32 | row
}
