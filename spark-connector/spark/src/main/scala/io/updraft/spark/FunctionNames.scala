// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.analysis.{
  UnresolvedAlias,
  UnresolvedFunction,
  UnresolvedFunctionName,
  UnresolvedTableValuedFunction
}
import org.apache.spark.sql.catalyst.expressions.{Expression, NamedArgumentExpression}
import org.apache.spark.sql.catalyst.plans.logical.{DescribeFunction, LogicalPlan}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.util.toPrettySQL
import org.apache.spark.sql.updraft.{DeclaredArgument, FunctionText, SparksOwn, TableCall}

import io.updraft.spark.functions.{
  NamedArguments,
  PoolFunction,
  RegisteredCalls,
  UnboundPoolFunction
}

/** Resolves what Spark does not ask a catalog for: table functions, named arguments, DESCRIBE, and
  * names of columns.
  */
case class FunctionNames(session: SparkSession) extends Rule[LogicalPlan] {

  override def apply(plan: LogicalPlan): LogicalPlan =
    plan.resolveOperatorsUp {
      case table: UnresolvedTableValuedFunction if !SparksOwn.givesTable(session, table.name) =>
        find(table.name).fold[LogicalPlan](table)(tableCall(_, table.functionArgs))
      case describe @ DescribeFunction(function: UnresolvedFunctionName, _)
          if !SparksOwn.is(session, function.multipartIdentifier) =>
        find(function.multipartIdentifier)
          .fold[LogicalPlan](describe)(unbound => FunctionText(unbound.description()))
    }.resolveExpressions {
      case call: UnresolvedFunction if call.arguments.exists(isNamed) =>
        ofPool(call).fold(call) { unbound =>
          call.copy(arguments = NamedArguments.inOrder(unbound.function, call.arguments))
        }
      case column @ UnresolvedAlias(value, _) if calls(value) =>
        column.copy(aliasFunc = Some(call => toPrettySQL(call.transform(RegisteredCalls.pretty))))
    }

  private def calls(value: Expression) = value.exists {
    case call: UnresolvedFunction => ofPool(call).isDefined
    case _ => false
  }

  private def ofPool(call: UnresolvedFunction): Option[UnboundPoolFunction] =
    if (SparksOwn.givesValue(session, call.nameParts)) None else find(call.nameParts)

  private def isNamed(argument: Expression) = argument.isInstanceOf[NamedArgumentExpression]

  private def find(name: Seq[String]): Option[UnboundPoolFunction] =
    TableCall.catalogOf(session, name) match {
      case (catalog: FunctionCatalog, rest) => catalog.find(rest)
      case _ => None
    }

  private def tableCall(unbound: UnboundPoolFunction, arguments: Seq[Expression]): LogicalPlan = {
    val function: PoolFunction = unbound.function
    unbound.requireTable()
    val ordered = NamedArguments.inOrder(function, arguments)
    UnboundPoolFunction.checkCount(function, ordered.length)
    val typed = ordered.zip(function.arguments).map { case (argument, declared) =>
      DeclaredArgument(argument, declared, function.name)
    }
    TableCall.of(session, unbound.called, function.rows, typed, function.isDeterministic)
  }
}
