// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.plan

import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeSet, PythonUDF}
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.updraft.SparkInternals.EvalType
import org.apache.spark.sql.updraft.{PythonCall, PythonConf, SessionConf, SparkInternals}

import io.updraft.spark.config.UdfSettings
import io.updraft.spark.task.input.{ArgumentInput, PickledInput, Pickling, RequestSpec, TaskInput}
import io.updraft.spark.task.output.{PickledReplies, ReplyReader, Results}
import io.updraft.spark.task.{FunctionCall, TaskRunner}

/** Operator that evaluates one-to-one Python UDFs on a pool and replaces ArrowEvalPythonExec and
  * BatchEvalPythonExec.
  *
  * @param evalType
  *   eval type that Spark planned. It may differ from the function's own eval type: Spark 4.0
  *   pickles the arguments of an Arrow-optimized function if one argument has a user-defined type
  */
case class FlightEvalPythonExec(
    udfs: Seq[PythonUDF],
    resultAttrs: Seq[Attribute],
    child: SparkPlan,
    override val evalType: Int,
    settings: UdfSettings
) extends FlightScalarExec {

  override protected def resultColumns: Seq[Attribute] = resultAttrs

  override def producedAttributes: AttributeSet = AttributeSet(resultAttrs)

  override protected[plan] def taskRunner: TaskRunner = {
    val call = PythonCall.of(udfs)
    val all = child.output.indices
    val spec = requestSpec(child.output, all, all, call.inputs)
    val results = udfs.map(_.dataType)
    val names = functionNames
    val policy = once
    if (evalType == EvalType.Pickled) {
      val pickling = Pickling(pickledRows, PythonConf.binaryAsBytes(conf))
      val newResults = () =>
        new Results.OneToOne(names, new PickledReplies(results, spec))
      val shipped = pickledCall(call, pickledRows).copy(once = policy)
      runner(shipped, new PickledInput(spec, pickling, policy), newResults)
    } else {
      val newResults = () =>
        new Results.OneToOne(names, new ReplyReader.OfColumns(results))
      val shipped = functionCall(call, spec).copy(once = policy)
      runner(shipped, new ArgumentInput(spec, policy), newResults)
    }
  }

  private def runner(
      call: FunctionCall,
      input: TaskInput,
      newResults: () => Results
  ): TaskRunner = new TaskRunner(settings, call, input, newResults, exchangeMetrics)

  override protected def mayCallOnce: Boolean =
    (evalType == EvalType.Pickled ||
      evalType == EvalType.ArrowOptimized && !SparkInternals.convertsBatchesForArrowUdfs(conf)) &&
      SessionConf.profiler(conf).isEmpty && !PythonCall.mayUseAccumulators(udfs)

  override protected def identity: String = PythonCall.digest(udfs)

  private def functionCall(call: PythonCall, spec: RequestSpec): FunctionCall = arrowCall(
    call,
    evalConf =
      if (evalType == EvalType.ArrowOptimized) Map("input_type" -> spec.inputType.json)
      else Map.empty
  )

  override def simpleString(maxFields: Int): String = withOnce(super.simpleString(maxFields))

  private def pickledRows: Int = SessionConf.pickledRows(conf)

  override protected def withNewChildInternal(newChild: SparkPlan): FlightEvalPythonExec =
    copy(child = newChild)
}
