// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.sql.catalyst.analysis.TypeCheckResult
import org.apache.spark.sql.catalyst.analysis.TypeCheckResult.TypeCheckFailure
import org.apache.spark.sql.catalyst.expressions.{
  Expression,
  ImplicitCastInputTypes,
  UnaryExpression,
  Unevaluable
}
import org.apache.spark.sql.types.{AbstractDataType, DataType, StructField}

/** Argument with a declared type. Spark casts the argument like an argument of its own functions,
  * provided that the cast changes no value.
  *
  * @param actual
  *   type before Spark's cast; None if it is not known yet
  */
final case class DeclaredArgument(
    child: Expression,
    declared: StructField,
    function: String,
    actual: Option[DataType] = None
) extends UnaryExpression
    with ImplicitCastInputTypes
    with Unevaluable {

  override def inputTypes: Seq[AbstractDataType] =
    Seq(if (problem.isEmpty) declared.dataType else child.dataType)

  override def checkInputDataTypes(): TypeCheckResult =
    problem.fold(super.checkInputDataTypes())(TypeCheckFailure(_))

  override def dataType: DataType = child.dataType

  override def prettyName: String = function

  /** Return the argument that is sent, with the cast if there is one. */
  def value: Expression = actual.fold(child)(ArgumentCast.strict(child, _))

  override protected def withNewChildInternal(newChild: Expression): DeclaredArgument = copy(
    child = newChild,
    actual = if (child.resolved) actual.orElse(Some(child.dataType)) else None
  )

  private def problem: Option[String] =
    ArgumentCast.problem(function, declared.name, child.dataType, declared.dataType)
}
