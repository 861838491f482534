// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.plan

import org.apache.spark.sql.catalyst.expressions.{
  Attribute,
  AttributeSet,
  Expression,
  PythonFuncExpression,
  PythonUDF,
  PythonUDTF
}
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.updraft.CalledFunction

import io.updraft.client.Replay
import io.updraft.spark.columns.{ResultColumns, SelectedColumn}
import io.updraft.spark.config.UdfSettings
import io.updraft.spark.task.input.{ArgumentInput, RequestSpec}
import io.updraft.spark.task.output.{ReplyReader, Results, TableResults}
import io.updraft.spark.task.{RegisteredTaskFunction, TaskRunner}

/** Shared part of the operators that call a registered function. */
trait FlightRegisteredExec extends FlightUnaryExec {

  /** Return the function that the operator calls. */
  def function: PythonFuncExpression

  override def udfs: Seq[PythonFuncExpression] = Seq(function)

  protected def called: CalledFunction = CalledFunction
    .of(function)
    .getOrElse(throw new IllegalStateException(s"${function.name} is not a registered function"))

  /** Return no functions. The pool already has its registered functions, so they need neither a
    * signature nor matching versions of Python and Spark.
    */
  override protected def shipped: Seq[PythonFuncExpression] = Seq.empty

  /** Return the specification of requests with a column for each argument. The columns have the
    * types that the pool expects, whatever the session's time zone and its preference for large
    * types.
    */
  protected def argumentSpec(
      copied: Seq[Int],
      passed: Seq[Int],
      arguments: Seq[Expression]
  ): RequestSpec =
    requestSpec(child.output, copied, passed, arguments).copy(
      timeZone = "UTC",
      largeVarTypes = false
    )

  override def simpleString(maxFields: Int): String =
    s"$nodeName [$functionNames], endpoint=${settings.endpoint}"
}

/** Operator that calls a registered function that returns a value for each row.
  *
  * @param result
  *   column of the results
  */
case class FlightCallExec(
    function: PythonUDF,
    result: Attribute,
    child: SparkPlan,
    settings: UdfSettings
) extends FlightRegisteredExec
    with FlightScalarExec {

  override def udfs: Seq[PythonUDF] = Seq(function)

  override protected def resultColumns: Seq[Attribute] = Seq(result)

  override def producedAttributes: AttributeSet = AttributeSet(result)

  override protected def mayCallOnce: Boolean = called.seesRows

  override protected def identity: String = s"${called.fullName} of ${called.endpoint}"

  override protected[plan] def taskRunner: TaskRunner = {
    val all = child.output.indices
    val spec = argumentSpec(all, all, function.children)
    val names = functionNames
    val types = Seq(result.dataType)
    new TaskRunner(
      settings,
      new RegisteredTaskFunction(called, replay),
      new ArgumentInput(spec, once),
      () => new Results.OneToOne(names, new ReplyReader.OfColumns(types)),
      exchangeMetrics
    )
  }

  override def simpleString(maxFields: Int): String = withOnce(super.simpleString(maxFields))

  override protected def withNewChildInternal(newChild: SparkPlan): FlightCallExec =
    copy(child = newChild)
}

/** Operator that calls a registered function that returns any number of rows for each row.
  *
  * @param requiredChildOutput
  *   columns of the child that are joined to each row that the function returns
  */
case class FlightCallTableExec(
    function: PythonUDTF,
    requiredChildOutput: Seq[Attribute],
    results: Seq[Attribute],
    child: SparkPlan,
    settings: UdfSettings
) extends FlightRegisteredExec {

  override def output: Seq[Attribute] = requiredChildOutput ++ results

  override def producedAttributes: AttributeSet = AttributeSet(results)

  override def vectorTypes: Option[Seq[String]] = Some(
    requiredChildOutput.map(_ => classOf[SelectedColumn].getName) ++
      results.map(column => ResultColumns.className(column.dataType))
  )

  override protected def replay: Replay =
    if (function.udfDeterministic) Replay.FROM_THE_START else Replay.NEVER

  override protected[plan] def taskRunner: TaskRunner = {
    val passed = ordinals(requiredChildOutput)
    val copied = (ordinals(function.children) ++ passed).distinct
    val spec = argumentSpec(copied, passed, function.children)
    val types = results.map(_.dataType)
    new TaskRunner(
      settings,
      new RegisteredTaskFunction(called, replay, joined = true),
      new ArgumentInput(spec),
      () => FlightCallTableExec.newResults(new ReplyReader.OfColumns(types)),
      exchangeMetrics
    )
  }

  private def ordinals(expressions: Seq[Expression]): Seq[Int] = expressions.collect {
    case column: Attribute => child.output.indexWhere(_.exprId == column.exprId)
  }.filter(_ >= 0)

  override protected def withNewChildInternal(newChild: SparkPlan): FlightCallTableExec =
    copy(child = newChild)
}

object FlightCallTableExec {
  private def newResults(replies: ReplyReader): Results = new TableResults(replies)
}
