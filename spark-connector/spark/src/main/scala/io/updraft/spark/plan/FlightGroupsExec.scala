// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.plan

import scala.jdk.CollectionConverters._

import org.apache.spark.TaskContext
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.physical.{Distribution, Partitioning}
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.python.{
  FlatMapCoGroupsInPandasExec,
  FlatMapGroupsInPandasExec,
  GroupColumns
}
import org.apache.spark.sql.execution.{BinaryExecNode, SparkPlan}
import org.apache.spark.sql.updraft.SparkInternals.EvalType
import org.apache.spark.sql.updraft.{PythonCall, SparkInternals}
import org.apache.spark.sql.vectorized.ColumnarBatch

import io.updraft.spark.config.UdfSettings
import io.updraft.spark.task.groups.{GroupMetrics, GroupedInput, RowShape}
import io.updraft.spark.task.output.{ReplyReader, Results, RowCheck, RowResult}
import io.updraft.spark.task.{CogroupedMapRunner, FunctionCall, TaskRunner}

/** Shared part of the operators whose function returns rows for groups of rows. */
trait FlightGroupsExec extends FlightPythonExec {

  def function: PythonUDF

  /** Return the operator that Spark would have planned. The requirements of that operator apply
    * here, too.
    */
  protected def stock: SparkPlan

  override def outputPartitioning: Partitioning = stock.outputPartitioning

  override def requiredChildDistribution: Seq[Distribution] = stock.requiredChildDistribution

  private lazy val groupMetrics = GroupMetrics.create(sparkContext)

  override lazy val metrics: Map[String, SQLMetric] = exchangeMetrics.all ++ groupMetrics.all

  override def udfs: Seq[PythonUDF] = Seq(function)

  override def producedAttributes: AttributeSet = AttributeSet(output)

  protected def groupedInput(
      plan: SparkPlan,
      keys: Seq[Attribute],
      columns: GroupColumns,
      shape: RowShape
  ): GroupedInput = {
    val spec = requestSpec(plan.output, columns.ordinals, Seq.empty, columns.attributes)
    GroupedInput(spec, keys, GroupOrder.groupedRows(keys, plan, groupMetrics), shape)
  }

  protected def groupedCall(arguments: Seq[Int]): FunctionCall =
    arrowCall(PythonCall.ofNumbers(function, arguments))

  protected def rowResult: RowResult =
    RowResult(
      function.dataType,
      output.map(_.dataType),
      output.map(!_.nullable),
      EvalType.name(evalType),
      RowCheck.Layout
    )
}

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

  override protected def stock: SparkPlan = FlatMapGroupsInPandasExec(keys, function, output, child)

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

  override protected def stock: SparkPlan =
    FlatMapCoGroupsInPandasExec(leftKeys, rightKeys, function, output, left, right)

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
      .copy(secondInputSchema = SparkInternals.message(rightInput.schema))
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
