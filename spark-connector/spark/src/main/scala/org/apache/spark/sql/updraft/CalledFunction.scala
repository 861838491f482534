// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import java.util.Collections

import org.apache.spark.api.python.{PythonBroadcast, PythonEvalType, PythonFunction}
import org.apache.spark.broadcast.Broadcast
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.expressions.{
  Expression,
  PythonFuncExpression,
  PythonUDAF,
  PythonUDF
}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.execution.python.UserDefinedPythonTableFunction
import org.apache.spark.sql.types.{DataType, StructType}

/** Registered function of a pool, in the place where Spark expects a pickled function. So Spark's
  * own rules extract the calls from expressions, and only the operator differs.
  *
  * @param endpoint
  *   endpoint of the pool that has the function
  * @param version
  *   version of the function; empty for the pool's default version
  * @param state
  *   type of an aggregate's state
  * @param seesRows
  *   true if the function is called for each row, so that it cannot see other rows
  */
final case class CalledFunction(
    endpoint: String,
    name: String,
    version: String,
    state: Option[DataType],
    seesRows: Boolean = false
) extends PythonFunction {

  /** Return the name in errors and plans. */
  def fullName: String = if (version.isEmpty) name else s"$name@$version"

  override def command: Seq[Byte] = Seq.empty
  override def envVars: java.util.Map[String, String] = Collections.emptyMap()
  override def pythonIncludes: java.util.List[String] = Collections.emptyList()
  override def pythonExec: String = ""
  override def pythonVer: String = ""
  override def broadcastVars: java.util.List[Broadcast[PythonBroadcast]] = Collections.emptyList()
  override def accumulator: PythonAccumulators.Updates = null
}

object CalledFunction {

  /** Return the registered function behind a Python expression, if it is one. */
  def of(expression: PythonFuncExpression): Option[CalledFunction] = Some(expression.func).collect {
    case called: CalledFunction => called
  }

  /** Return a call that returns a value for each row. For functions of this kind, Spark makes
    * batches of Arrow data and evaluates the calls in a separate node.
    */
  def scalar(
      called: CalledFunction,
      result: DataType,
      arguments: Seq[Expression],
      deterministic: Boolean
  ): PythonUDF = PythonUDF(
    called.fullName,
    called,
    result,
    arguments,
    SparkInternals.EvalType.ScalarPandas,
    deterministic
  )

  /** Return a call that returns a table for each row of arguments. */
  def table(
      session: SparkSession,
      called: CalledFunction,
      rows: StructType,
      arguments: Seq[Expression],
      deterministic: Boolean
  ): LogicalPlan = {
    val evalType = PythonEvalType.SQL_ARROW_TABLE_UDF
    val function =
      new UserDefinedPythonTableFunction(called.fullName, called, rows, evalType, deterministic)
    TableFunctions.call(session, function, arguments)
  }

  /** Return a call that returns a value for each group. */
  def aggregate(
      called: CalledFunction,
      result: DataType,
      arguments: Seq[Expression],
      deterministic: Boolean
  ): PythonUDAF = Defaults
    .call(
      PythonUDAF,
      "apply",
      Seq(called.fullName, called, result, arguments, Boolean.box(deterministic))
    )
    .asInstanceOf[PythonUDAF]
}
