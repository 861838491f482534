// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.reasons

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression
import org.apache.spark.sql.catalyst.planning.{PhysicalAggregation, PhysicalWindow}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan

/** Extractor for aggregates whose functions are all Python functions of one kind, with the parts
  * that Spark's own strategy uses. Aggregates that Spark refuses do not match, so that Spark
  * reports why.
  */
object PythonAggregate {
  type Parts = (Seq[NamedExpression], Seq[AggregateExpression], Seq[NamedExpression], LogicalPlan)

  def unapply(plan: LogicalPlan): Option[Parts] = plan match {
    case PhysicalAggregation(keys, functions, results, child) =>
      val kinds = functions.map(_.aggregateFunction).map {
        case udf: PythonUDAF => Some(udf.evalType)
        case _ => None
      }
      kinds.distinct match {
        case Seq(Some(_)) => Some((keys, functions, results, child))
        case _ => None
      }
    case _ => None
  }
}

/** Extractor for windows whose functions are all Python functions of one kind. */
object PythonWindow {
  type Parts = (Seq[NamedExpression], Seq[Expression], Seq[SortOrder], LogicalPlan)

  def unapply(plan: LogicalPlan): Option[Parts] = plan match {
    case PhysicalWindow(WindowFunctionType.Python, windows, partitions, order, child) =>
      val kinds = windows.flatMap(_.collect { case udf: PythonUDAF => udf.evalType })
      kinds.distinct match {
        case Seq(kind) if FunctionKinds.inWindow.contains(kind) =>
          Some((windows, partitions, order, child))
        case _ => None
      }
    case _ => None
  }
}
