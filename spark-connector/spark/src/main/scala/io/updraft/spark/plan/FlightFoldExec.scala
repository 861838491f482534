// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.plan

import org.apache.spark.TaskContext
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression
import org.apache.spark.sql.catalyst.plans.physical.{Distribution, Partitioning}
import org.apache.spark.sql.execution.metric.{SQLMetric, SQLMetrics}
import org.apache.spark.sql.execution.window.WindowExecBase
import org.apache.spark.sql.execution.{SparkPlan, UnaryExecNode}
import org.apache.spark.sql.updraft.{PythonCall, SessionKeys, SparkInternals, WindowFrames}

import io.updraft.spark.config.UdfSettings
import io.updraft.spark.reasons.FunctionKinds
import io.updraft.spark.task.FoldRunner
import io.updraft.spark.task.groups.{AggregateFold, Fold, GroupMetrics, GroupedRows, WindowFold}

/** Shared part of the operators for aggregates and windows. They read sorted rows and return rows.
  * [[FoldRunner]] does the work of a task.
  */
trait FlightFoldExec extends FlightPythonExec with UnaryExecNode {

  /** Return the functions. The functions' arguments refer to the columns of [[fold]]. */
  protected def pythonCall: PythonCall

  protected def fold: Fold

  /** Return settings for PySpark's worker that are specific to this kind of function. */
  protected def kindConf: Map[String, String] = Map.empty

  override def supportsColumnar: Boolean = false

  override protected def doExecute(): RDD[InternalRow] = {
    beforeTasks()
    val runner = taskRunner
    val barrier = barrierTasks
    SparkInternals.mapPartitions(child.execute()) { (partition, rows) =>
      val context = TaskContext.get()
      barrier.filter(_.include(context)) match {
        case Some(stock) => stock.rows(partition, Seq(rows), context)
        case None => runner.run(partition, rows, context)
      }
    }
  }

  override protected[plan] def taskRunner: FoldRunner = {
    val call = pythonCall
    val rows = fold
    val copied = rows.columns.indices.filter { column =>
      call.inputs.exists(_.semanticEquals(rows.columns(column)))
    }
    val spec = requestSpec(rows.columns, copied, Seq.empty, call.inputs)
    val results = udfs.map(_.dataType)
    new FoldRunner(settings, arrowCall(call, kindConf), spec, rows, results, exchangeMetrics)
  }
}

/** Operator that runs Python aggregates on a pool, in place of ArrowAggregatePythonExec. It returns
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

/** Operator that runs Python aggregates over window frames on a pool, in place of
  * ArrowWindowPythonExec. It returns the child's rows with the functions' results.
  */
case class FlightWindowExec(
    windowExpression: Seq[NamedExpression],
    partitionSpec: Seq[Expression],
    orderSpec: Seq[SortOrder],
    child: SparkPlan,
    settings: UdfSettings
) extends FlightFoldExec
    with WindowExecBase {

  override val udfs: Seq[PythonUDAF] =
    windowExpression.flatMap(_.collect { case udf: PythonUDAF => udf })

  override def evalType: Int = FunctionKinds.inWindow(udfs.head.evalType)

  private lazy val spillSize = SQLMetrics.createSizeMetric(sparkContext, "spill size")

  private lazy val frames =
    WindowFrames(windowExpression, partitionSpec, orderSpec, child.output, spillSize)

  override lazy val metrics: Map[String, SQLMetric] =
    exchangeMetrics.all + ("spillSize" -> spillSize)

  override protected def pythonCall: PythonCall =
    PythonCall.of(udfs).after(frames.boundColumns, frames.boundsOfFunctions)

  override protected def fold: Fold = WindowFold(frames)

  override protected def kindConf: Map[String, String] =
    Map("window_bound_types" -> frames.boundTypes.mkString(","))

  override protected def withNewChildInternal(newChild: SparkPlan): FlightWindowExec =
    copy(child = newChild)
}
