// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.plan

import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeSet, Expression, PythonUDTF}
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.types.DataType
import org.apache.spark.sql.updraft.SparkInternals.EvalType
import org.apache.spark.sql.updraft.{PythonCall, PythonConf}

import io.updraft.client.Replay
import io.updraft.spark.columns.{ResultColumns, SelectedColumn}
import io.updraft.spark.config.UdfSettings
import io.updraft.spark.task.TaskRunner
import io.updraft.spark.task.input.{ArgumentInput, PickledInput, Pickling, RequestSpec}
import io.updraft.spark.task.output.{PickledTableResults, ReplyReader, Results, TableResults}

/** Operator that runs a table function on a pool and replaces BatchEvalPythonUDTFExec and
  * ArrowEvalPythonUDTFExec.
  *
  * @param requiredChildOutput
  *   columns of the child that are joined to each row that the function returns
  */
case class FlightEvalPythonUDTFExec(
    udtf: PythonUDTF,
    requiredChildOutput: Seq[Attribute],
    resultAttrs: Seq[Attribute],
    child: SparkPlan,
    settings: UdfSettings
) extends FlightUnaryExec {

  override def udfs: Seq[PythonUDTF] = Seq(udtf)

  /** Return the replay policy. Only the session's setting decides, because Spark regards a table
    * function as nondeterministic unless the function is declared deterministic.
    */
  override protected def replay: Replay =
    if (settings.deterministic) Replay.FROM_THE_START else Replay.NEVER

  override def output: Seq[Attribute] = requiredChildOutput ++ resultAttrs

  override def producedAttributes: AttributeSet = AttributeSet(resultAttrs)

  override def vectorTypes: Option[Seq[String]] = Some(
    requiredChildOutput.map(_ => classOf[SelectedColumn].getName) ++
      resultAttrs.map(column => ResultColumns.className(column.dataType))
  )

  /** Return the ordinals of the expressions that are columns of the child. */
  private def columns(expressions: Seq[Expression]): Seq[Int] =
    expressions.map {
      case column: Attribute => child.output.indexWhere(_.exprId == column.exprId)
      case _ => -1
    }.filter(_ >= 0)

  override protected[plan] def taskRunner: TaskRunner = {
    val call = PythonCall.ofTable(udtf)
    val passed = columns(requiredChildOutput)
    val copied = (columns(call.inputs) ++ passed).distinct
    val spec = requestSpec(child.output, copied, passed, call.inputs)
    if (evalType == EvalType.PickledTable) pickledRunner(call, spec)
    else arrowRunner(call, spec)
  }

  private def pickledRunner(call: PythonCall, spec: RequestSpec): TaskRunner = {
    val rowType = udtf.elementSchema
    val batchBytes = settings.batchBytes
    val listRows = FlightPythonExec.DefaultPickledRows
    new TaskRunner(
      settings,
      pickledCall(call, listRows).copy(joined = true),
      new PickledInput(spec, Pickling(listRows, PythonConf.binaryAsBytes(conf))),
      () => new PickledTableResults(rowType, spec, batchBytes),
      exchangeMetrics
    )
  }

  private def arrowRunner(call: PythonCall, spec: RequestSpec): TaskRunner = {
    val evalConf =
      if (evalType == EvalType.ArrowOptimizedTable) "input_type" -> spec.inputType.json
      else "table_arg_offsets" -> PythonCall.tableOffsets(udtf, call).mkString(",")
    val types = resultAttrs.map(_.dataType)
    val required = resultAttrs.map(!_.nullable)
    new TaskRunner(
      settings,
      arrowCall(call, evalConf = Map(evalConf)).copy(joined = requiredChildOutput.nonEmpty),
      new ArgumentInput(spec),
      () => FlightEvalPythonUDTFExec.arrowResults(types, required, spec),
      exchangeMetrics
    )
  }

  override protected def withNewChildInternal(newChild: SparkPlan): FlightEvalPythonUDTFExec =
    copy(child = newChild)
}

object FlightEvalPythonUDTFExec {

  private def arrowResults(
      types: Seq[DataType],
      required: Seq[Boolean],
      spec: RequestSpec
  ): Results = {
    val replies = new ReplyReader.OfTable(types, required)
    if (spec.passed.isEmpty) new Results.Unprompted(replies)
    else new TableResults(replies)
  }
}
