// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.api.python.PythonFunction
import org.apache.spark.sql.catalyst.expressions.{
  Expression,
  NamedArgumentExpression,
  PythonFuncExpression,
  PythonUDF
}
import org.apache.spark.util.CollectionAccumulator

import io.updraft.spark.plan.Obstacle

/** An argument of a UDF: which of the exchange's distinct arguments it is, and its name if it was
  * given one.
  */
final case class CallArgument(offset: Int, name: Option[String])

/** UDFs chained into one: the result of each command is the argument of the next. */
final case class ChainedUdf(
    commands: Seq[Array[Byte]],
    resultId: Long,
    arguments: Seq[CallArgument]
)

/** The UDFs that one operator evaluates together, taken apart as EvalPythonEvaluatorFactory does
  * it.
  *
  * @param udfs
  *   one for each result column
  * @param inputs
  *   the distinct arguments, in the order that [[CallArgument.offset]] counts
  * @param pythonVersion
  *   Python that pickled the functions, "major.minor"
  * @param accumulator
  *   where the functions' accumulator updates go; null only in tests
  * @param belongings
  *   what the functions need beside their pickles
  */
final case class PythonCall(
    udfs: Seq[ChainedUdf],
    inputs: Seq[Expression],
    pythonVersion: String,
    accumulator: CollectionAccumulator[Array[Byte]],
    belongings: Belongings
) {

  /** The same call with `columns` in front of the inputs; of each function's arguments the first
    * are those that `leading` counts for it.
    */
  def after(columns: Seq[Expression], leading: Seq[Seq[Int]]): PythonCall = copy(
    udfs = udfs.zip(leading).map { case (udf, offsets) =>
      val moved = udf.arguments.map(argument =>
        argument.copy(offset = argument.offset + columns.length)
      )
      udf.copy(arguments = offsets.map(CallArgument(_, None)) ++ moved)
    },
    inputs = columns ++ inputs
  )
}

object PythonCall {

  def of(udfs: Seq[PythonFuncExpression]): PythonCall = {
    val inputs = ArrayBuffer.empty[Expression]
    val chained = udfs.map { udf =>
      val functions = chain(udf)
      val arguments = innermost(udf).children.map(argument(_, inputs))
      ChainedUdf(functions.map(_.command.toArray), udf.resultId.id, arguments)
    }
    val functions = functionsOf(udfs)
    val first = functions.head
    PythonCall(
      chained,
      inputs.toSeq,
      first.pythonVer,
      first.accumulator,
      Belongings.of(functions)
    )
  }

  /** A call whose one argument is not an expression: the whole row. */
  def ofRows(udf: PythonUDF): PythonCall = ofNumbers(udf, Seq(0))

  /** A call with the numbers that PySpark's worker takes for arguments. */
  def ofNumbers(udf: PythonUDF, numbers: Seq[Int]): PythonCall = PythonCall(
    Seq(
      ChainedUdf(
        Seq(udf.func.command.toArray),
        udf.resultId.id,
        numbers.map(CallArgument(_, None))
      )
    ),
    Seq.empty,
    udf.func.pythonVer,
    udf.func.accumulator,
    Belongings.of(Seq(udf.func))
  )

  /** Why the pool cannot run these functions, if it cannot. */
  def obstacle(udfs: Seq[PythonFuncExpression]): Option[Obstacle] =
    functionsOf(udfs)
      .flatMap(function => Option(function.envVars.get("PYTHONHASHSEED")))
      .find(_ != PoolHashSeed)
      .map(Obstacle.HashSeed.about)

  /** What PySpark sets unless the user does. */
  private val PoolHashSeed = "0"

  private def functionsOf(udfs: Seq[PythonFuncExpression]): Seq[PythonFunction] =
    udfs.flatMap(chain)

  private def chain(udf: PythonFuncExpression): Seq[PythonFunction] = udf.children match {
    case Seq(inner: PythonFuncExpression) => chain(inner) :+ udf.func
    case _ => Seq(udf.func)
  }

  private def innermost(udf: PythonFuncExpression): PythonFuncExpression = udf.children match {
    case Seq(inner: PythonFuncExpression) => innermost(inner)
    case _ => udf
  }

  private def argument(expression: Expression, inputs: ArrayBuffer[Expression]): CallArgument = {
    val (name, value) = expression match {
      case NamedArgumentExpression(key, named) => (Some(key), named)
      case other => (None, other)
    }
    val known = inputs.indexWhere(_.semanticEquals(value))
    if (known < 0) inputs += value
    CallArgument(if (known < 0) inputs.length - 1 else known, name)
  }
}
