// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.functions

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Expression, NamedArgumentExpression}
import org.apache.spark.sql.connector.catalog.functions.{
  AggregateFunction,
  BoundFunction,
  ScalarFunction
}
import org.apache.spark.sql.types.DataType
import org.apache.spark.sql.updraft.{ArgumentCast, CalledFunction}

/** Facts about a registered function that a call needs. These facts exclude the pool's description
  * to stay small: Spark sends the expressions that hold them to executors.
  *
  * @param actual
  *   types of the arguments before Spark casts them
  * @param declared
  *   types to which Spark casts them
  */
final case class FunctionBinding(
    called: CalledFunction,
    actual: Seq[DataType],
    declared: Seq[DataType],
    result: DataType,
    deterministic: Boolean
)

/** Registered function bound to argument types. [[RegisteredCalls]] replaces it with a call to a
  * pool.
  */
trait PoolCalled extends BoundFunction {
  def binding: FunctionBinding

  def called: CalledFunction = binding.called

  /** Return the arguments of the call, with casts that raise an error if a value does not fit. */
  def strict(arguments: Seq[Expression]): Seq[Expression] = {
    if (arguments.exists(_.exists(_.isInstanceOf[NamedArgumentExpression])))
      // The arguments are not in order yet: while the query named the function by an expression,
      // the connector did not know which function's signature applies.
      throw new UnsupportedOperationException(
        s"cannot call $name through IDENTIFIER with named arguments: write its name instead of IDENTIFIER"
      )
    arguments.zip(binding.actual).map { case (argument, dataType) =>
      ArgumentCast.strict(argument, dataType)
    }
  }

  override def inputTypes(): Array[DataType] = binding.declared.toArray
  override def resultType(): DataType = binding.result
  override def isResultNullable: Boolean = true
  override def isDeterministic: Boolean = binding.deterministic
  override def name(): String = called.fullName
  override def canonicalName(): String = s"updraft.${called.endpoint}.${called.fullName}"

  protected def notHere: UnsupportedOperationException = new UnsupportedOperationException(
    s"$name runs on a pool: it needs io.updraft.spark.UpdraftExtensions in spark.sql.extensions, and cannot be " +
      "called in DEFAULT or VALUES, which Spark computes itself"
  )
}

final class PoolScalar(override val binding: FunctionBinding)
    extends ScalarFunction[AnyRef]
    with PoolCalled {
  override def produceResult(input: InternalRow): AnyRef = throw notHere
}

final class PoolAggregate(override val binding: FunctionBinding)
    extends AggregateFunction[String, AnyRef]
    with PoolCalled {
  override def newAggregationState(): String = throw notHere
  override def update(state: String, input: InternalRow): String = throw notHere
  override def merge(left: String, right: String): String = throw notHere
  override def produceResult(state: String): AnyRef = throw notHere
}
