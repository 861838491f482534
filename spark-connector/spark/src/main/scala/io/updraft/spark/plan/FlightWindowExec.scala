// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.plan

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.metric.{SQLMetric, SQLMetrics}
import org.apache.spark.sql.execution.window.WindowExecBase
import org.apache.spark.sql.updraft.{PythonCall, WindowFrames}

import io.updraft.spark.config.UdfSettings
import io.updraft.spark.reasons.FunctionKinds
import io.updraft.spark.task.groups.{Fold, WindowFold}

/** Operator that runs Python aggregates over window frames on a pool and replaces
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
