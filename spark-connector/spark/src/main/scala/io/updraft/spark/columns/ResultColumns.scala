// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.columns

import org.apache.arrow.vector.{FieldVector, LargeVarBinaryVector, LargeVarCharVector, ValueVector}
import org.apache.spark.sql.types._
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnVector}
import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.types.UTF8String

/** Spark columns over Arrow vectors, with one final class for each layout. Generated code can
  * therefore inline a memory read, whereas ArrowColumnVector makes a virtual call with bounds and
  * null checks.
  */
object ResultColumns {

  /** Wrap a vector in a column, which then owns the vector. */
  def wrap(vector: FieldVector, dataType: DataType): ArrowColumnVector = dataType match {
    case ByteType => new ByteColumn(vector)
    case ShortType => new ShortColumn(vector)
    case IntegerType | DateType | _: YearMonthIntervalType => new IntColumn(vector)
    case LongType | TimestampType | TimestampNTZType | _: DayTimeIntervalType =>
      new LongColumn(vector)
    case FloatType => new FloatColumn(vector)
    case DoubleType => new DoubleColumn(vector)
    case BooleanType => new BooleanColumn(vector)
    case decimal: DecimalType if decimal.precision <= Decimal.MAX_LONG_DIGITS =>
      new SmallDecimalColumn(vector)
    case _: StringType => new StringColumn(vector)
    case udt: UserDefinedType[_] => wrap(vector, udt.sqlType)
    case _ => new ArrowColumnVector(vector)
  }

  /** Return a range of rows of a column made by [[wrap]], as a column of the same class. The new
    * column shares the buffers and is closed separately.
    */
  def slice(column: ColumnVector, from: Int, rows: Int): ColumnVector = {
    val vector = column.asInstanceOf[ArrowColumnVector].getValueVector
    val part = vector.getTransferPair(vector.getAllocator)
    part.splitAndTransfer(from, rows)
    wrap(part.getTo.asInstanceOf[FieldVector], column.dataType())
  }

  /** Return whether a vector of the found type can be read by the column that [[wrap]] makes for
    * the declared type.
    */
  def reads(found: DataType, declared: DataType): Boolean = (found, declared) match {
    case (found: DecimalType, declared: DecimalType) => found == declared
    case _ => className(found) == className(declared)
  }

  /** Return the name of the class that [[wrap]] uses for a type. Spark's generated code casts to
    * this class.
    */
  def className(dataType: DataType): String = dataType match {
    case ByteType => classOf[ByteColumn].getName
    case ShortType => classOf[ShortColumn].getName
    case IntegerType | DateType | _: YearMonthIntervalType => classOf[IntColumn].getName
    case LongType | TimestampType | TimestampNTZType | _: DayTimeIntervalType =>
      classOf[LongColumn].getName
    case FloatType => classOf[FloatColumn].getName
    case DoubleType => classOf[DoubleColumn].getName
    case BooleanType => classOf[BooleanColumn].getName
    case decimal: DecimalType if decimal.precision <= Decimal.MAX_LONG_DIGITS =>
      classOf[SmallDecimalColumn].getName
    case _: StringType => classOf[StringColumn].getName
    case udt: UserDefinedType[_] => className(udt.sqlType)
    case _ => classOf[ArrowColumnVector].getName
  }
}

/** Column that reads validity without ArrowColumnVector's accessor. The addresses remain valid
  * while the vector is open.
  */
private[columns] abstract class DirectColumn(vector: ValueVector)
    extends ArrowColumnVector(vector) {
  private[this] val nulls = vector.getNullCount
  private[this] val validity = if (nulls > 0) vector.getValidityBuffer.memoryAddress() else 0L
  protected val data: Long = vector.getDataBuffer.memoryAddress()

  override final def hasNull: Boolean = nulls > 0
  override final def numNulls(): Int = nulls

  override final def isNullAt(rowId: Int): Boolean =
    nulls > 0 && (Platform.getByte(null, validity + (rowId >> 3)) & (1 << (rowId & 7))) == 0
}

final class ByteColumn(vector: ValueVector) extends DirectColumn(vector) {
  override def getByte(rowId: Int): Byte = Platform.getByte(null, data + rowId)
}

final class ShortColumn(vector: ValueVector) extends DirectColumn(vector) {
  override def getShort(rowId: Int): Short = Platform.getShort(null, data + rowId * 2L)
}

final class IntColumn(vector: ValueVector) extends DirectColumn(vector) {
  override def getInt(rowId: Int): Int = Platform.getInt(null, data + rowId * 4L)
}

final class LongColumn(vector: ValueVector) extends DirectColumn(vector) {
  override def getLong(rowId: Int): Long = Platform.getLong(null, data + rowId * 8L)
}

final class FloatColumn(vector: ValueVector) extends DirectColumn(vector) {
  override def getFloat(rowId: Int): Float = Platform.getFloat(null, data + rowId * 4L)
}

final class DoubleColumn(vector: ValueVector) extends DirectColumn(vector) {
  override def getDouble(rowId: Int): Double = Platform.getDouble(null, data + rowId * 8L)
}

final class BooleanColumn(vector: ValueVector) extends DirectColumn(vector) {
  override def getBoolean(rowId: Int): Boolean =
    (Platform.getByte(null, data + (rowId >> 3)) & (1 << (rowId & 7))) != 0
}

/** Column of decimals with up to 18 digits, whose low 8 bytes are the value. */
final class SmallDecimalColumn(vector: ValueVector) extends DirectColumn(vector) {
  override def getDecimal(rowId: Int, precision: Int, scale: Int): Decimal =
    if (isNullAt(rowId)) null
    else Decimal.createUnsafe(Platform.getLong(null, data + rowId * 16L), precision, scale)
}

final class StringColumn(vector: ValueVector) extends DirectColumn(vector) {
  private[this] val offsets = vector.getOffsetBuffer.memoryAddress()
  private[this] val large =
    vector.isInstanceOf[LargeVarCharVector] || vector.isInstanceOf[LargeVarBinaryVector]

  override def getUTF8String(rowId: Int): UTF8String =
    if (isNullAt(rowId)) {
      null
    } else {
      val start = offset(rowId)
      UTF8String.fromAddress(null, data + start, (offset(rowId + 1) - start).toInt)
    }

  private def offset(row: Int): Long =
    if (large) Platform.getLong(null, offsets + row * 8L)
    else Platform.getInt(null, offsets + row * 4L).toLong
}
