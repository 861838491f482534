// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.sql.catalyst.expressions.{Cast, EvalMode, Expression}
import org.apache.spark.sql.types._

/** What Spark's implicit casts may do to an argument. For its own functions Spark cuts 1.5 off to
  * 1; every other caller of a registered function hears an error.
  */
object ArgumentCast {

  /** Why Spark must not cast an argument by itself; None: it may, or it will refuse it. */
  def problem(
      function: String,
      argument: String,
      actual: DataType,
      declared: DataType
  ): Option[String] =
    if (!changesValues(actual, declared)) None
    else
      Some(
        s"argument $argument of $function is ${declared.sql}, not ${actual.sql}, and a cast could " +
          s"change its value: write CAST(... AS ${declared.sql}) where that is meant"
      )

  /** The argument, with the cast that Spark has put around it, if any, in a form that raises an
    * error where a value does not fit. Without ANSI mode it would become another one, or null.
    */
  def strict(argument: Expression, actual: DataType): Expression = argument match {
    case cast: Cast if cast.dataType != actual && cast.child.dataType == actual =>
      if (Cast.canAnsiCast(actual, cast.dataType)) cast.copy(evalMode = EvalMode.ANSI) else cast
    case other => other
  }

  /** Whether a cast, even one of ANSI mode, may drop digits or a time of day without an error.
    * Numbers that become the nearest DOUBLE or FLOAT, and texts that become days, are left to
    * Spark: queries are full of them.
    */
  private[updraft] def changesValues(actual: DataType, declared: DataType): Boolean =
    (actual, declared) match {
      case (from: DecimalType, to: DecimalType) => to.scale < from.scale
      case (from: DecimalType, _: IntegralType) => from.scale > 0
      case (FloatType | DoubleType, _: IntegralType | _: DecimalType) => true
      case (DoubleType, FloatType) => true
      case (_: StringType, _: DecimalType) => true
      case (TimestampType | TimestampNTZType, DateType) => true
      case (ArrayType(from, _), ArrayType(to, _)) => changesValues(from, to)
      case (MapType(fromKey, fromValue, _), MapType(toKey, toValue, _)) =>
        changesValues(fromKey, toKey) || changesValues(fromValue, toValue)
      case (StructType(from), StructType(to)) =>
        from.zip(to).exists { case (one, other) => changesValues(one.dataType, other.dataType) }
      case _ => false
    }
}
