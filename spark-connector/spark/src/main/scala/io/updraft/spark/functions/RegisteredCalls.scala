// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.functions

import org.apache.spark.sql.catalyst.expressions.aggregate.{AggregateExpression, V2Aggregator}
import org.apache.spark.sql.catalyst.expressions.{
  ApplyFunctionExpression,
  Expression,
  KnownNullable,
  PrettyPythonUDF,
  WindowExpression
}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.connector.catalog.functions.BoundFunction
import org.apache.spark.sql.updraft.{CalledFunction, DeclaredArgument}

/** Rule that replaces each resolved pool function with a call to its pool, after Spark has cast the
  * arguments.
  */
object RegisteredCalls extends Rule[LogicalPlan] {

  override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveExpressions(onPool.orElse {
    case argument: DeclaredArgument if argument.checkInputDataTypes().isSuccess =>
      // Spark continues with the children of `argument.value`, so it would miss a call that is the
      // whole value.
      onPool.applyOrElse(argument.value, identity[Expression])
  })

  private val onPool: PartialFunction[Expression, Expression] = {
    case call @ ApplyFunctionExpression(scalar: PoolScalar, arguments) if call.resolved =>
      // Without this wrapper, Spark would chain this call with an enclosing call into a single call
      // to one worker.
      KnownNullable(
        CalledFunction.scalar(
          scalar.called,
          scalar.resultType(),
          scalar.strict(arguments),
          scalar.isDeterministic
        )
      )
    case WindowExpression(AggregateExpression(v2: V2Aggregator[_, _], _, _, _, _), _)
        if v2.aggrFunc.isInstanceOf[PoolAggregate] =>
      throw new UnsupportedOperationException(
        s"${v2.aggrFunc.name} cannot be called with OVER: call it with GROUP BY in a subquery, and join its results"
      )
    case call: AggregateExpression if call.resolved =>
      call.aggregateFunction match {
        case v2: V2Aggregator[_, _] => aggregate(call, v2.aggrFunc, v2.children)
        case _ => call
      }
  }

  /** Text of a call in the name of the call's column, such as `f(x)`. */
  val pretty: PartialFunction[Expression, Expression] = {
    case call @ ApplyFunctionExpression(scalar: PoolScalar, arguments) =>
      PrettyPythonUDF(scalar.name(), call.dataType, arguments)
    case call: V2Aggregator[_, _] if call.aggrFunc.isInstanceOf[PoolAggregate] =>
      PrettyPythonUDF(call.aggrFunc.name(), call.dataType, call.children)
  }

  private def aggregate(
      call: AggregateExpression,
      function: BoundFunction,
      arguments: Seq[Expression]
  ): AggregateExpression = function match {
    case aggregate: PoolAggregate =>
      call.copy(aggregateFunction =
        CalledFunction.aggregate(
          aggregate.called,
          aggregate.resultType(),
          aggregate.strict(arguments),
          aggregate.isDeterministic
        )
      )
    case _ => call
  }
}
