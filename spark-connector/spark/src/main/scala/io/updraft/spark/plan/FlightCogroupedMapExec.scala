// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.plan

import scala.jdk.CollectionConverters._

import org.apache.spark.TaskContext
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.physical.{Distribution, Partitioning}
import org.apache.spark.sql.execution.python.{FlatMapCoGroupsInPandasExec, GroupColumns}
import org.apache.spark.sql.execution.{BinaryExecNode, SparkPlan}
import org.apache.spark.sql.vectorized.ColumnarBatch

import io.updraft.spark.config.UdfSettings
import io.updraft.spark.task.CogroupedMapRunner
import io.updraft.spark.task.groups.RowShape

/** Operator that runs cogrouped applyInPandas and applyInArrow on a pool and replaces
  * FlatMapCoGroupsInPandasExec and FlatMapCoGroupsInArrowExec.
  */
case class FlightCogroupedMapExec(
    leftKeys: Seq[Attribute],
    rightKeys: Seq[Attribute],
    function: PythonUDF,
    output: Seq[Attribute],
    left: SparkPlan,
    right: SparkPlan,
    settings: UdfSettings
) extends FlightGroupsExec
    with BinaryExecNode {

  /** Return the operator that Spark would have planned, whose requirements apply here, too. */
  private def stock: SparkPlan =
    FlatMapCoGroupsInPandasExec(leftKeys, rightKeys, function, output, left, right)

  override def outputPartitioning: Partitioning = stock.outputPartitioning

  override def requiredChildDistribution: Seq[Distribution] = stock.requiredChildDistribution

  override def requiredChildOrdering: Seq[Seq[SortOrder]] =
    Seq(leftKeys, rightKeys).map(GroupOrder.required)

  override protected def doExecuteColumnar(): RDD[ColumnarBatch] = {
    beforeTasks()
    val runner = taskRunner
    val barrier = barrierTasks
    rows(left).zipPartitions(rows(right)) { (leftRows, rightRows) =>
      val context = TaskContext.get()
      val partition = context.partitionId()
      barrier.filter(_.include(context)) match {
        case Some(stock) => stock.batches(partition, Seq(leftRows, rightRows), context)
        case None => runner.run(partition, leftRows, rightRows, context)
      }
    }
  }

  override protected[plan] def taskRunner: CogroupedMapRunner = {
    val leftColumns = GroupColumns.of(left.output, leftKeys)
    val rightColumns = GroupColumns.of(right.output, rightKeys)
    val leftInput = groupedInput(left, leftKeys, leftColumns, RowShape.Columns)
    val rightInput = groupedInput(right, rightKeys, rightColumns, RowShape.Columns)
    val call = groupedCall(leftColumns.arguments ++ rightColumns.arguments)
      .copy(secondInputSchema = rightInput.schema.serializeAsMessage())
    new CogroupedMapRunner(settings, call, leftInput, rightInput, rowResult, exchangeMetrics)
  }

  private def rows(plan: SparkPlan): RDD[InternalRow] =
    if (plan.supportsColumnar) plan.executeColumnar().flatMap(_.rowIterator().asScala)
    else plan.execute()

  override protected def withNewChildrenInternal(
      newLeft: SparkPlan,
      newRight: SparkPlan
  ): FlightCogroupedMapExec = copy(left = newLeft, right = newRight)
}
