// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.plan

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.physical.{Distribution, Partitioning}
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.python.{FlatMapGroupsInPandasExec, GroupColumns}

import io.updraft.spark.config.UdfSettings
import io.updraft.spark.task.TaskRunner
import io.updraft.spark.task.groups.RowShape
import io.updraft.spark.task.output.{ReplyReader, Results}

/** Operator that runs applyInPandas and applyInArrow on a pool and replaces
  * FlatMapGroupsInPandasExec and FlatMapGroupsInArrowExec.
  */
case class FlightGroupedMapExec(
    keys: Seq[Attribute],
    function: PythonUDF,
    output: Seq[Attribute],
    child: SparkPlan,
    shape: RowShape,
    settings: UdfSettings
) extends FlightUnaryExec
    with FlightGroupsExec {

  /** Return the operator that Spark would have planned, whose requirements apply here, too. */
  private def stock: SparkPlan = FlatMapGroupsInPandasExec(keys, function, output, child)

  override def outputPartitioning: Partitioning = stock.outputPartitioning

  override def requiredChildDistribution: Seq[Distribution] = stock.requiredChildDistribution

  override def requiredChildOrdering: Seq[Seq[SortOrder]] = Seq(GroupOrder.required(keys))

  override protected[plan] def taskRunner: TaskRunner = {
    val columns = GroupColumns.of(child.output, keys)
    val result = rowResult
    new TaskRunner(
      settings,
      groupedCall(columns.arguments),
      groupedInput(child, keys, columns, shape),
      () => new Results.FreeRunning(new ReplyReader.OfRows(result)),
      exchangeMetrics
    )
  }

  override protected def withNewChildInternal(newChild: SparkPlan): FlightGroupedMapExec =
    copy(child = newChild)
}
