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
import io.updraft.spark.exchange._

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
    val spec = RequestSpec(
      child.output,
      child.output.indices,
      child.output.indices,
      call.inputs,
      limits,
      conf.sessionLocalTimeZone,
      conf.arrowUseLargeVarTypes
    )
    val results = udfs.map(_.dataType)
    val names = functionNames
    val replay = if (udfs.forall(_.deterministic)) Replay.REPLAY else Replay.NEVER
    if (evalType == EvalType.Pickled) {
      val pickling = Pickling(pickledRows, PythonConf.binaryAsBytes(conf))
      val newResults = () =>
        Results.oneToOne(names, new PickledReplies(results, spec, SparkInternals.allocator))
      new PickledRunner(settings, pickledCall(call), spec, pickling, newResults, replay, metrics)
    } else {
      val newResults = () =>
        Results.oneToOne(names, new ReplyReader.OfColumns(results, SparkInternals.allocator))
      new EvalRunner(settings, arrowCall(call, spec), spec, newResults, replay, metrics)
    }
  }

  private def arrowCall(call: PythonCall, spec: RequestSpec): FunctionCall = FunctionCall(
    call,
    functionNames,
    evalType,
    SparkInternals.arrowRunnerConf(conf),
    if (evalType == EvalType.ArrowOptimized) Map("input_type" -> spec.inputType.json)
    else Map.empty,
    environment(FlightPythonExec.DefaultPickledRows),
    if (sliceRows == Int.MaxValue) 0 else sliceRows
  )

  private def pickledCall(call: PythonCall): FunctionCall = FunctionCall(
    call,
    functionNames,
    evalType,
    SparkInternals.pickledRunnerConf(conf),
    Map.empty,
    environment(pickledRows),
    maxRecordsPerBatch = 0
  )

  private def pickledRows: Int = conf.getConf(SQLConf.PYTHON_UDF_MAX_RECORDS_PER_BATCH)

  override protected def withNewChildInternal(newChild: SparkPlan): FlightEvalPythonExec =
    copy(child = newChild)
}
