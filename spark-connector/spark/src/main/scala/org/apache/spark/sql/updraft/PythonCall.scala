// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import java.nio.charset.StandardCharsets.UTF_8
import java.security.MessageDigest
import java.util.HexFormat

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.api.python.PythonFunction
import org.apache.spark.sql.catalyst.expressions.{
  Expression,
  NamedArgumentExpression,
  PythonFuncExpression,
  PythonUDF,
  PythonUDTF
}
import org.apache.spark.sql.types.StructType
import org.apache.spark.util.CollectionAccumulator

/** Argument of a UDF: the index among the exchange's distinct arguments, and the name if the
  * argument has a name.
  */
final case class CallArgument(offset: Int, name: Option[String])

/** UDFs chained into one: the result of each command is the argument of the next. */
final case class ChainedUdf(
    commands: Seq[Array[Byte]],
    resultId: Long,
    arguments: Seq[CallArgument]
)

/** Table function in the form that PySpark's worker reads.
  *
  * @param partitionIndexes
  *   fields of the TABLE argument by which the table is partitioned
  * @param analyzeResult
  *   pickled result of the class's `analyze`
  */
final case class TableFunction(
    name: String,
    command: Array[Byte],
    returnType: StructType,
    arguments: Seq[CallArgument],
    partitionIndexes: Seq[Int],
    analyzeResult: Option[Array[Byte]]
)

/** Functions that one operator evaluates together, decomposed as in Spark's own operators.
  *
  * @param udfs
  *   one UDF for each result column; empty for a table function
  * @param inputs
  *   distinct arguments, in the order of [[CallArgument.offset]]
  * @param pythonVersion
  *   version of the Python that pickled the functions, "major.minor"
  * @param accumulator
  *   destination of the functions' accumulator updates; null only in tests
  * @param artifacts
  *   artifacts that the functions need in addition to their pickles
  * @param table
  *   table function, which replaces `udfs`
  */
final case class PythonCall(
    udfs: Seq[ChainedUdf],
    inputs: Seq[Expression],
    pythonVersion: String,
    accumulator: CollectionAccumulator[Array[Byte]],
    artifacts: FunctionArtifacts,
    table: Option[TableFunction] = None
) {

  /** Return the call with `columns` before the inputs. `leading` lists, for each function, the
    * positions of the columns that the function takes before its arguments.
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
      FunctionArtifacts.of(functions)
    )
  }

  /** Return a call whose only argument is not an expression but the whole row. */
  def ofRows(udf: PythonUDF): PythonCall = ofNumbers(udf, Seq(0))

  /** Return a call with the numbers that PySpark's worker takes as arguments. */
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
    FunctionArtifacts.of(Seq(udf.func))
  )

  def ofTable(udtf: PythonUDTF): PythonCall = {
    val inputs = ArrayBuffer.empty[Expression]
    val function = TableFunction(
      udtf.name,
      udtf.func.command.toArray,
      udtf.elementSchema,
      udtf.children.map(argument(_, inputs)),
      TableFunctions.partitionIndexes(udtf),
      TableFunctions.analyzeResult(udtf)
    )
    PythonCall(
      Seq.empty,
      inputs.toSeq,
      udtf.func.pythonVer,
      udtf.func.accumulator,
      FunctionArtifacts.of(Seq(udtf.func)),
      Some(function)
    )
  }

  /** Return the offsets of the TABLE arguments among the inputs of a call of `udtf`. */
  def tableOffsets(udtf: PythonUDTF, call: PythonCall): Seq[Int] = for {
    function <- call.table.toSeq
    (argument, true) <- function.arguments.zip(TableArguments.of(udtf))
  } yield argument.offset

  /** Return the artifacts that these functions need in addition to their pickles. */
  def artifactsOf(udfs: Seq[PythonFuncExpression]): FunctionArtifacts =
    FunctionArtifacts.of(functionsOf(udfs))

  /** Return the versions of Python that pickled these functions, "major.minor". */
  def pythonVersions(udfs: Seq[PythonFuncExpression]): Seq[String] =
    functionsOf(udfs).map(_.pythonVer).distinct

  /** Return the hash seeds that these functions set for Python. */
  def hashSeeds(udfs: Seq[PythonFuncExpression]): Seq[String] =
    functionsOf(udfs).flatMap(function => Option(function.envVars.get("PYTHONHASHSEED")))

  /** Return whether functions may update accumulators. They may if their pickles refer to an
    * accumulator, or if Spark ships the functions as a broadcast variable, whose content the driver
    * cannot read.
    */
  def mayUseAccumulators(udfs: Seq[PythonFuncExpression]): Boolean =
    functionsOf(udfs).map(_.command).exists { command =>
      command.indexOfSlice(LoadsAccumulator) >= 0 ||
      (command.indexOfSlice(LoadsBroadcast) >= 0 && command.length < MostBytesOfBroadcastPickle)
    }

  /** Return a digest of these functions. */
  def digest(udfs: Seq[PythonFuncExpression]): String = {
    val sha256 = MessageDigest.getInstance("SHA-256")
    functionsOf(udfs).foreach(function => sha256.update(function.command.toArray))
    HexFormat.of().formatHex(sha256.digest())
  }

  private val LoadsAccumulator = "_deserialize_accumulator".getBytes(UTF_8).toSeq

  private val LoadsBroadcast = "_from_id".getBytes(UTF_8).toSeq

  /** Size from which a pickle that refers to a broadcast variable must also contain a function. */
  private val MostBytesOfBroadcastPickle = 128

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
