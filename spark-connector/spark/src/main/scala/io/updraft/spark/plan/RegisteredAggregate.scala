// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.plan

import org.apache.spark.SparkException
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression
import org.apache.spark.sql.catalyst.planning.PhysicalAggregation
import org.apache.spark.sql.catalyst.plans.Inner
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.updraft.{CalledFunction, SparkInternals}

/** Groups with one registered aggregate and nothing else. */
object RegisteredAggregate {
  type Parts =
    (Seq[NamedExpression], PythonUDAF, AggregateExpression, Seq[NamedExpression], LogicalPlan)

  def unapply(plan: LogicalPlan): Option[Parts] = plan match {
    case PhysicalAggregation(keys, Seq(aggregate), results, child) =>
      Some(aggregate.aggregateFunction).collect {
        case function: PythonUDAF if CalledFunction.of(function).isDefined =>
          (keys, function, aggregate, results, child)
      }
    case _ => None
  }

  /** The pool brings equal values of Arrow together: raises an error where Spark's equality is
    * another.
    */
  def requireKeys(function: PythonUDAF, keys: Seq[NamedExpression]): Unit =
    keys.find(key => SparkInternals.isCollated(key.dataType)).foreach { key =>
      throw new SparkException(
        s"${function.name}() cannot group by ${key.sql}: its collation is Spark's own; group by a cast of it to STRING"
      )
    }
}

/** An aggregation with a registered aggregate and other functions, as a join of aggregations: one
  * for each registered aggregate, and one for all others.
  */
object GroupedApart {

  def apply(
      keys: Seq[NamedExpression],
      functions: Seq[AggregateExpression],
      results: Seq[NamedExpression],
      child: LogicalPlan
  ): LogicalPlan = {
    val (registered, others) = functions.partition(isRegistered)
    if (!child.deterministic)
      throw new SparkException(
        s"${registered.map(_.sql).mkString(", ")} cannot be computed beside other aggregates of rows that differ " +
          "each time: persist them first"
      )
    val parts = registered.map(Seq(_)) ++ Option(others).filter(_.nonEmpty)
    val first = part(keys.map(key => key -> key.toAttribute), parts.head, child)
    val joined = parts.tail.foldLeft(first) { (left, part) =>
      val own = keys.map(key => key -> key.toAttribute.newInstance())
      val condition = own
        .map { case (key, column) => EqualNullSafe(key.toAttribute, column): Expression }
        .reduceOption(And)
      Join(left, this.part(own, part, child), Inner, condition, JoinHint.NONE)
    }
    Project(results, joined)
  }

  private def isRegistered(aggregate: AggregateExpression): Boolean =
    aggregate.aggregateFunction match {
      case function: PythonUDAF => CalledFunction.of(function).isDefined
      case _ => false
    }

  /** The keys under these names, and these functions under the names that the results have for
    * them.
    */
  private def part(
      keys: Seq[(NamedExpression, Attribute)],
      functions: Seq[AggregateExpression],
      child: LogicalPlan
  ): LogicalPlan = {
    val grouping = keys.map { case (key, _) => value(key) }
    val columns = keys.map { case (key, column) =>
      Alias(value(key), column.name)(exprId = column.exprId)
    }
    val values = functions.map { function =>
      Alias(function, function.resultAttribute.name)(exprId = function.resultAttribute.exprId)
    }
    Aggregate(grouping, columns ++ values, child)
  }

  private def value(key: NamedExpression): Expression = key match {
    case Alias(child, _) => child
    case other => other
  }
}
