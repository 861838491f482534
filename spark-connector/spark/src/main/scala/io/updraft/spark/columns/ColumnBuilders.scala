// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.columns

import org.apache.arrow.memory.BufferAllocator
import org.apache.arrow.vector.types.pojo.Field
import org.apache.spark.sql.types._

/** Chooses the builder of a column by its type. */
object ColumnBuilders {

  /** A builder of values of `dataType`; `field` is the same type in Arrow's words. */
  def of(dataType: DataType, field: Field, allocator: BufferAllocator, largeVarTypes: Boolean)
      : ColumnBuilder = {
    val offsetWidth = if (largeVarTypes) 8 else 4
    dataType match {
      case BooleanType => new BooleanBuilder(allocator)
      case ByteType => new ByteBuilder(allocator)
      case ShortType => new ShortBuilder(allocator)
      case IntegerType | DateType | _: YearMonthIntervalType => new IntBuilder(allocator)
      case LongType | TimestampType | TimestampNTZType | _: DayTimeIntervalType =>
        new LongBuilder(allocator)
      case FloatType => new FloatBuilder(allocator)
      case DoubleType => new DoubleBuilder(allocator)
      case decimal: DecimalType => new DecimalBuilder(allocator, decimal)
      case _: StringType => new StringBuilder(allocator, offsetWidth)
      case BinaryType => new BinaryBuilder(allocator, offsetWidth)
      case udt: UserDefinedType[_] => of(udt.sqlType, field, allocator, largeVarTypes)
      case _ => new NestedBuilder(allocator, field)
    }
  }
}
