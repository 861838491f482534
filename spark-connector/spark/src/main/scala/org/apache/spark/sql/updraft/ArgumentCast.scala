// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.sql.catalyst.expressions.{Cast, EvalMode, Expression}
import org.apache.spark.sql.types._

/** Limits on Spark's implicit casts of arguments. For its own functions, Spark truncates 1.5 to 1.
  * If a registered function declares an integer, 1.5 is an error, as it is for callers outside
  * Spark.
  */
object ArgumentCast {

  /** Return why Spark must not cast an argument implicitly; None if Spark may cast it, or if Spark
    * refuses the cast by itself.
    */
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
          s"change its value: write CAST(... AS ${declared.sql}) if that is intended"
      )

  /** Return the argument. If Spark has added a cast, change the cast so that it raises an error if
    * a value does not fit. Without ANSI mode, the cast would change the value or return null.
    */
  def strict(argument: Expression, actual: DataType): Expression = argument match {
    case cast: Cast if cast.dataType != actual && cast.child.dataType == actual =>
      if (Cast.canAnsiCast(actual, cast.dataType)) cast.copy(evalMode = EvalMode.ANSI) else cast
    case other => other
  }

  /** Return whether a cast, even in ANSI mode, may drop digits or a time of day without an error.
    * Casts of numbers to the nearest DOUBLE or FLOAT, and casts of strings to dates, are left to
    * Spark, because queries use them often.
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
