// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.columns

import org.apache.arrow.vector.types.pojo.Field
import org.apache.spark.sql.types._

/** Choice of the builder for a column's type. */
object ColumnBuilders {

  /** Return a builder for values of `dataType`; `field` is the same type in Arrow. */
  def of(dataType: DataType, field: Field, largeVarTypes: Boolean): ColumnBuilder = {
    val offsetWidth = if (largeVarTypes) 8 else 4
    dataType match {
      case BooleanType => new BooleanBuilder
      case ByteType => new ByteBuilder
      case ShortType => new ShortBuilder
      case IntegerType | DateType | _: YearMonthIntervalType => new IntBuilder
      case LongType | TimestampType | TimestampNTZType | _: DayTimeIntervalType =>
        new LongBuilder
      case FloatType => new FloatBuilder
      case DoubleType => new DoubleBuilder
      case decimal: DecimalType => new DecimalBuilder(decimal)
      case _: StringType => new StringBuilder(offsetWidth)
      case BinaryType => new BinaryBuilder(offsetWidth)
      case udt: UserDefinedType[_] => of(udt.sqlType, field, largeVarTypes)
      case _ => new NestedBuilder(field)
    }
  }
}
