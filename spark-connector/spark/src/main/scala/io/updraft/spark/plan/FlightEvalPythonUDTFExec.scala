// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.plan

import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeSet, Expression, PythonUDTF}
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.types.DataType
import org.apache.spark.sql.updraft.SparkInternals.EvalType
import org.apache.spark.sql.updraft.{PythonCall, PythonConf, SparkInternals}

import io.updraft.client.Replay
import io.updraft.spark.columns.{GatheredColumn, ResultColumns}
import io.updraft.spark.config.UdfSettings
import io.updraft.spark.exchange._

/** Runs a table function on a pool, in the place of BatchEvalPythonUDTFExec and
  * ArrowEvalPythonUDTFExec.
  *
  * @param requiredChildOutput
  *   the child's columns that are joined to each row of the function
  */
case class FlightEvalPythonUDTFExec(
    udtf: PythonUDTF,
    requiredChildOutput: Seq[Attribute],
    resultAttrs: Seq[Attribute],
    child: SparkPlan,
    settings: UdfSettings
) extends FlightUnaryExec {

  override def udfs: Seq[PythonUDTF] = Seq(udtf)

  override def evalType: Int = udtf.evalType

  override def output: Seq[Attribute] = requiredChildOutput ++ resultAttrs

  override def producedAttributes: AttributeSet = AttributeSet(resultAttrs)

  override def vectorTypes: Option[Seq[String]] = Some(
    requiredChildOutput.map(_ => classOf[GatheredColumn].getName) ++
      resultAttrs.map(column => ResultColumns.className(column.dataType))
  )

  /** Ordinals of those expressions that are columns of the child. */
  private def columns(expressions: Seq[Expression]): Seq[Int] =
    expressions.map {
      case column: Attribute => child.output.indexWhere(_.exprId == column.exprId)
      case _ => -1
    }.filter(_ >= 0)

  private def isPickled: Boolean = evalType == EvalType.PickledTable

  override protected def taskRunner(metrics: ExchangeMetrics): TaskRunner = {
    val call = PythonCall.ofTable(udtf)
    val passed = columns(requiredChildOutput)
    val spec = RequestSpec(
      child.output,
      (columns(call.inputs) ++ passed).distinct,
      passed,
      call.inputs,
      limits,
      conf.sessionLocalTimeZone,
      conf.arrowUseLargeVarTypes
    )
    if (isPickled) {
      val rowType = udtf.elementSchema
      val batchBytes = settings.batchBytes
      val pickling = Pickling(FlightPythonExec.DefaultPickledRows, PythonConf.binaryAsBytes(conf))
      val newResults = () =>
        new PickledTableResults(rowType, spec, batchBytes, SparkInternals.allocator)
      new PickledRunner(
        settings,
        pickledCall(call),
        spec,
        pickling,
        newResults,
        Replay.NEVER,
        metrics
      )
    } else {
      val types = resultAttrs.map(_.dataType)
      val newResults = () => FlightEvalPythonUDTFExec.arrowResults(types, spec)
      new EvalRunner(settings, arrowCall(call, spec), spec, newResults, Replay.NEVER, metrics)
    }
  }

  private def pickledCall(call: PythonCall): FunctionCall = FunctionCall(
    call,
    functionNames,
    evalType,
    SparkInternals.pickledRunnerConf(conf),
    Map.empty,
    environment(FlightPythonExec.DefaultPickledRows),
    maxRecordsPerBatch = 0,
    joined = true
  )

  private def arrowCall(call: PythonCall, spec: RequestSpec): FunctionCall = FunctionCall(
    call,
    functionNames,
    evalType,
    SparkInternals.arrowRunnerConf(conf),
    if (evalType == EvalType.ArrowOptimizedTable) Map("input_type" -> spec.inputType.json)
    else Map("table_arg_offsets" -> PythonCall.tableOffsets(udtf, call).mkString(",")),
    environment(FlightPythonExec.DefaultPickledRows),
    if (sliceRows == Int.MaxValue) 0 else sliceRows,
    joined = requiredChildOutput.nonEmpty
  )

  override protected def withNewChildInternal(newChild: SparkPlan): FlightEvalPythonUDTFExec =
    copy(child = newChild)
}

object FlightEvalPythonUDTFExec {

  private def arrowResults(types: Seq[DataType], spec: RequestSpec): Results = {
    val replies = new ReplyReader.OfTable(types, SparkInternals.allocator)
    if (spec.passed.isEmpty) Results.unprompted(replies)
    else new TableResults(replies)
  }
}
