// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import java.util.Collections

import org.apache.spark.api.python.{PythonBroadcast, PythonFunction}
import org.apache.spark.broadcast.Broadcast
import org.apache.spark.sql.catalyst.expressions.{
  Expression,
  PythonFuncExpression,
  PythonUDAF,
  PythonUDF
}
import org.apache.spark.sql.types.DataType
import org.apache.spark.util.CollectionAccumulator

/** A registered function of a pool in the place where Spark expects a pickled one: so Spark's own
  * rules take the calls out of expressions, and only the operator differs.
  *
  * @param endpoint
  *   of the pool that has it
  * @param version
  *   empty: the pool's default one
  * @param state
  *   type of what an aggregate makes of a part of a group
  */
final case class CalledFunction(
    endpoint: String,
    name: String,
    version: String,
    state: Option[DataType]
) extends PythonFunction {

  /** As errors and plans name it. */
  def fullName: String = if (version.isEmpty) name else s"$name@$version"

  override def command: Seq[Byte] = Seq.empty
  override def envVars: java.util.Map[String, String] = Collections.emptyMap()
  override def pythonIncludes: java.util.List[String] = Collections.emptyList()
  override def pythonExec: String = ""
  override def pythonVer: String = ""
  override def broadcastVars: java.util.List[Broadcast[PythonBroadcast]] = Collections.emptyList()
  override def accumulator: CollectionAccumulator[Array[Byte]] = null
}

object CalledFunction {

  /** The registered function that a Python expression stands for, if it does. */
  def of(expression: PythonFuncExpression): Option[CalledFunction] = Some(expression.func).collect {
    case called: CalledFunction => called
  }

  /** A call with a value for each row. Spark makes batches of Arrow data for functions of this
    * kind, and evaluates them in a node of their own.
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

  /** A call with a value for each group. */
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
