// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.sql.catalyst.expressions.{
  Expression,
  ImplicitCastInputTypes,
  UnaryExpression,
  Unevaluable
}
import org.apache.spark.sql.types.{AbstractDataType, DataType}

/** An argument whose type is declared: Spark casts it as it casts those of its own functions. */
final case class DeclaredArgument(child: Expression, declared: DataType, function: String)
    extends UnaryExpression
    with ImplicitCastInputTypes
    with Unevaluable {

  override def inputTypes: Seq[AbstractDataType] = Seq(declared)

  override def dataType: DataType = child.dataType

  override def prettyName: String = function

  override protected def withNewChildInternal(newChild: Expression): DeclaredArgument =
    copy(child = newChild)
}
