// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.plan

import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeSet, PythonUDF}
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.updraft.SparkInternals.EvalType
import org.apache.spark.sql.updraft.{PythonCall, PythonConf, SparkInternals}

import io.updraft.client.Replay
import io.updraft.spark.columns.ResultColumns
import io.updraft.spark.config.UdfSettings
import io.updraft.spark.task.input.{ArgumentInput, PickledInput, Pickling, RequestSpec}
import io.updraft.spark.task.output.{PickledReplies, ReplyReader, Results}
import io.updraft.spark.task.{ExchangeMetrics, FunctionCall, TaskRunner}

/** Evaluates one-to-one Python UDFs on a pool, in the place of ArrowEvalPythonExec and
  * BatchEvalPythonExec.
  */
case class FlightEvalPythonExec(
    udfs: Seq[PythonUDF],
    resultAttrs: Seq[Attribute],
    child: SparkPlan,
    evalType: Int,
    settings: UdfSettings
) extends FlightUnaryExec {

  override def output: Seq[Attribute] = child.output ++ resultAttrs

  override def producedAttributes: AttributeSet = AttributeSet(resultAttrs)

  override def vectorTypes: Option[Seq[String]] =
    Some(output.map(column => ResultColumns.className(column.dataType)))

  override protected def taskRunner(metrics: ExchangeMetrics): TaskRunner = {
    val call = PythonCall.of(udfs)
    val all = child.output.indices
    val spec = requestSpec(child.output, all, all, call.inputs)
    val results = udfs.map(_.dataType)
    val names = functionNames
    val replay = if (udfs.forall(_.deterministic)) Replay.REPLAY else Replay.NEVER
    if (evalType == EvalType.Pickled) {
      val input = new PickledInput(spec, Pickling(pickledRows, PythonConf.binaryAsBytes(conf)))
      val newResults = () =>
        Results.oneToOne(names, new PickledReplies(results, spec, SparkInternals.allocator))
      new TaskRunner(settings, pickledCall(call, pickledRows), input, newResults, replay, metrics)
    } else {
      val newResults = () =>
        Results.oneToOne(names, new ReplyReader.OfColumns(results, SparkInternals.allocator))
      val input = new ArgumentInput(spec)
      new TaskRunner(settings, functionCall(call, spec), input, newResults, replay, metrics)
    }
  }

  private def functionCall(call: PythonCall, spec: RequestSpec): FunctionCall = arrowCall(
    call,
    evalConf =
      if (evalType == EvalType.ArrowOptimized) Map("input_type" -> spec.inputType.json)
      else Map.empty
  )

  private def pickledRows: Int = conf.getConf(SQLConf.PYTHON_UDF_MAX_RECORDS_PER_BATCH)

  override protected def withNewChildInternal(newChild: SparkPlan): FlightEvalPythonExec =
    copy(child = newChild)
}
