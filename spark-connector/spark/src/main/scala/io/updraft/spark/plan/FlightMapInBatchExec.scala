// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.plan

import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeSet, PythonUDF}
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.updraft.SparkInternals.EvalType
import org.apache.spark.sql.updraft.{PythonCall, PythonConf}

import io.updraft.spark.columns.ResultColumns
import io.updraft.spark.config.UdfSettings
import io.updraft.spark.task.TaskRunner
import io.updraft.spark.task.input.RowInput
import io.updraft.spark.task.output.{ReplyReader, Results, RowCheck, RowResult}

/** Operator that runs mapInArrow and mapInPandas on a pool and replaces MapInArrowExec and
  * MapInPandasExec.
  */
case class FlightMapInBatchExec(
    function: PythonUDF,
    output: Seq[Attribute],
    child: SparkPlan,
    settings: UdfSettings
) extends FlightUnaryExec {

  override def udfs: Seq[PythonUDF] = Seq(function)

  override def producedAttributes: AttributeSet = AttributeSet(output)

  override def outputPartitioning: Partitioning = child.outputPartitioning

  override def vectorTypes: Option[Seq[String]] =
    if (PythonConf.validatesSchema(conf))
      Some(output.map(column => ResultColumns.className(column.dataType)))
    else None

  override protected def mayFuse: Boolean = true

  override protected[plan] def taskRunner: TaskRunner = {
    val spec = requestSpec(child.output, child.output.indices, Seq.empty, child.output)
    val result = RowResult(
      function.dataType,
      output.map(_.dataType),
      output.map(!_.nullable),
      EvalType.name(evalType),
      if (PythonConf.validatesSchema(conf)) RowCheck.Types else RowCheck.Nothing
    )
    new TaskRunner(
      settings,
      arrowCall(PythonCall.ofRows(function)),
      new RowInput(spec, child.schema),
      () => new Results.Unprompted(new ReplyReader.OfRows(result)),
      exchangeMetrics
    )
  }

  override protected def withNewChildInternal(newChild: SparkPlan): FlightMapInBatchExec =
    copy(child = newChild)
}
