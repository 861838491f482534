// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark

import scala.annotation.tailrec

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.analysis.{
  NoSuchFunctionException,
  UnresolvedAlias,
  UnresolvedFunction,
  UnresolvedFunctionName,
  UnresolvedTableValuedFunction
}
import org.apache.spark.sql.catalyst.expressions.{Expression, NamedArgumentExpression}
import org.apache.spark.sql.catalyst.plans.logical.{DescribeFunction, LogicalPlan}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.util.toPrettySQL
import org.apache.spark.sql.connector.catalog.{FunctionCatalog => CatalogFunctions, Identifier}
import org.apache.spark.sql.updraft.{
  CalledFunction,
  DeclaredArgument,
  FunctionPath,
  FunctionPlace,
  FunctionText,
  Renamed
}

import io.updraft.spark.functions.{
  NamedArguments,
  PoolFunction,
  RegisteredCalls,
  UnboundPoolFunction
}

/** Rule that resolves pool functions where Spark does not ask a catalog: table functions, named
  * arguments, DESCRIBE, and column names derived from calls.
  */
case class FunctionNames(session: SparkSession) extends Rule[LogicalPlan] {

  override def apply(plan: LogicalPlan): LogicalPlan =
    plan.resolveOperatorsUp {
      case table: UnresolvedTableValuedFunction =>
        find(table.name, hasTable)
          .fold[LogicalPlan](behindPools(table))(tableCall(_, table.functionArgs))
      case describe @ DescribeFunction(function: UnresolvedFunctionName, _) =>
        find(function.multipartIdentifier, place => hasValue(place) || hasTable(place))
          .fold[LogicalPlan](describe)(unbound => FunctionText(unbound.description()))
    }.resolveExpressions {
      case call: UnresolvedFunction if call.arguments.exists(isNamed) =>
        ofPool(call).fold(call) { unbound =>
          call.copy(arguments = NamedArguments.inOrder(unbound.function, call.arguments))
        }
      case call: UnresolvedFunction if call.nameParts.length > 1 =>
        requireKnown(call)
        call
      case column @ UnresolvedAlias(value, _) if calls(value) =>
        column.copy(aliasFunc = Some(call => toPrettySQL(call.transform(RegisteredCalls.pretty))))
    }

  private def calls(value: Expression) = value.exists {
    case call: UnresolvedFunction => ofPool(call).isDefined
    case _ => false
  }

  private def ofPool(call: UnresolvedFunction): Option[UnboundPoolFunction] =
    // Spark's internal functions belong to no namespace.
    if (Renamed.isInternal(call)) None else find(call.nameParts, hasValue)

  /** Raise an error if the name can only mean a pool's function and the pool has no such function.
    */
  private def requireKnown(call: UnresolvedFunction): Unit = ofPool(call)

  private def isNamed(argument: Expression) = argument.isInstanceOf[NamedArgumentExpression]

  private def hasValue(place: FunctionPlace) = place match {
    case FunctionPlace.System(name) => FunctionPath.systemHasValue(session, name)
    case other => hasAny(other)
  }

  private def hasTable(place: FunctionPlace) = place match {
    case FunctionPlace.System(name) => FunctionPath.systemHasTable(session, name)
    case other => hasAny(other)
  }

  /** Return whether a catalog has this function. The function may return values or a table, because
    * a catalog does not distinguish the two.
    */
  private def hasAny(place: FunctionPlace) = place match {
    case FunctionPlace.Catalog(functions: CatalogFunctions, name) =>
      functions.functionExists(Identifier.of(name.init.toArray, name.last))
    case _ => false
  }

  /** Return the pool's function that the name refers to; None if Spark finds another function
    * first.
    */
  private def find(
      name: Seq[String],
      isFoundIn: FunctionPlace => Boolean
  ): Option[UnboundPoolFunction] = {
    val places = FunctionPath.of(session, name)
    if (name.length == 1) first(places, isFoundIn)
    else
      places match {
        // The name can only mean a pool's function. Raise the error here, because Spark's own error
        // would not suggest the most similar name.
        case Seq(FunctionPlace.Catalog(catalog: FunctionCatalog, inside)) =>
          Some(catalog.find(inside).getOrElse(throw notFound(name, catalog.missing(inside))))
        case _ => first(places, isFoundIn)
      }
  }

  /** Return Spark's own error for an unknown function. */
  private def notFound(name: Seq[String], reason: String) = new NoSuchFunctionException(
    "ROUTINE_NOT_FOUND",
    Map("routineName" -> s"${name.mkString(".")} ($reason)")
  )

  @tailrec
  private def first(
      places: Seq[FunctionPlace],
      isFoundIn: FunctionPlace => Boolean
  ): Option[UnboundPoolFunction] = places match {
    case FunctionPlace.Catalog(catalog: FunctionCatalog, name) +: others =>
      catalog.find(name) match {
        case None => first(others, isFoundIn)
        case found => found
      }
    case (place: FunctionPlace.System) +: others if !isFoundIn(place) => first(others, isFoundIn)
    // Ask another kind of catalog only if a catalog of pools comes later in the search path.
    case (place: FunctionPlace.Catalog) +: others
        if others.exists(isOfPools) && !isFoundIn(place) =>
      first(others, isFoundIn)
    case _ => None
  }

  /** Return the table function under its full name if Spark's search path has a catalog of pools
    * before the function. Under the short name, Spark would search the pools' catalog, find no
    * table functions there, and stop.
    */
  private def behindPools(table: UnresolvedTableValuedFunction): UnresolvedTableValuedFunction = {
    val (before, from) = FunctionPath.of(session, table.name).span {
      case FunctionPlace.Unknown => false
      case place => isOfPools(place) || !hasTable(place)
    }
    from.headOption match {
      case Some(FunctionPlace.System(name)) if before.exists(isOfPools) => table.copy(name = name)
      case Some(FunctionPlace.Catalog(catalog, name)) if before.exists(isOfPools) =>
        table.copy(name = catalog.name +: name)
      case _ => table
    }
  }

  private def isOfPools(place: FunctionPlace) = place match {
    case FunctionPlace.Catalog(_: FunctionCatalog, _) => true
    case _ => false
  }

  private def tableCall(unbound: UnboundPoolFunction, arguments: Seq[Expression]): LogicalPlan = {
    val function: PoolFunction = unbound.function
    unbound.requireTable()
    val ordered = NamedArguments.inOrder(function, arguments)
    UnboundPoolFunction.checkCount(function, ordered.length)
    val typed = ordered.zip(function.arguments).map { case (argument, declared) =>
      DeclaredArgument(argument, declared, function.name)
    }
    CalledFunction.table(session, unbound.called, function.rows, typed, function.isDeterministic)
  }
}
