// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.plan

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression
import org.apache.spark.sql.catalyst.plans.physical.{Distribution, Partitioning}
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.updraft.{PythonCall, SessionKeys, SparkInternals}

import io.updraft.spark.config.UdfSettings
import io.updraft.spark.task.groups.{AggregateFold, Fold, GroupMetrics, GroupedRows}

/** Operator that runs Python aggregates on a pool and replaces ArrowAggregatePythonExec. It returns
  * one row for each group.
  */
case class FlightAggregateExec(
    keys: Seq[NamedExpression],
    functions: Seq[AggregateExpression],
    results: Seq[NamedExpression],
    child: SparkPlan,
    settings: UdfSettings
) extends FlightFoldExec {
  private val sessions = SessionKeys.of(keys, child.output)

  override val udfs: Seq[PythonUDAF] =
    functions.map(_.aggregateFunction.asInstanceOf[PythonUDAF])

  private lazy val groupMetrics = GroupMetrics.create(sparkContext)

  override lazy val metrics: Map[String, SQLMetric] = exchangeMetrics.all ++ groupMetrics.all

  override def output: Seq[Attribute] = results.map(_.toAttribute)

  override def producedAttributes: AttributeSet = AttributeSet(output)

  override def outputPartitioning: Partitioning = child.outputPartitioning

  override def requiredChildDistribution: Seq[Distribution] =
    Seq(SparkInternals.togetherBy(keys))

  override def requiredChildOrdering: Seq[Seq[SortOrder]] = Seq(
    sessions.fold(GroupOrder.required(keys))(_.sortKeys.map(SortOrder(_, Ascending)))
  )

  override protected def pythonCall: PythonCall = PythonCall.of(udfs)

  private def groupedRows: GroupedRows =
    sessions.fold(GroupOrder.groupedRows(keys, child, groupMetrics))(_ => GroupedRows.FromChild)

  override protected def fold: Fold =
    AggregateFold(
      keys,
      sessions,
      groupedRows,
      child.output,
      functions.map(_.resultAttribute),
      results
    )

  override protected def withNewChildInternal(newChild: SparkPlan): FlightAggregateExec =
    copy(child = newChild)
}
