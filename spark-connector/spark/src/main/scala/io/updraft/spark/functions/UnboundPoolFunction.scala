// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.functions

import org.apache.spark.sql.connector.catalog.functions.{BoundFunction, UnboundFunction}
import org.apache.spark.sql.types.{DataType, StructType}
import org.apache.spark.sql.updraft.{ArgumentCast, CalledFunction}

import io.updraft.proto.v1.{FunctionDescription, FunctionKind}

/** A registered function before it is called with arguments.
  *
  * @param version
  *   the one that the query names; empty: the pool's default one
  */
final class UnboundPoolFunction private (
    described: FunctionDescription,
    version: String,
    known: Either[String, PoolFunction]
) extends UnboundFunction {

  override def name(): String = described.getName

  override def description(): String = known.fold(
    problem => s"${described.getName}: Spark cannot call it: $problem",
    _.text
  )

  /** The function in Spark's types; raises an error where it has others. */
  def function: PoolFunction = known.fold(
    problem => throw new UnsupportedOperationException(s"$name cannot be called: $problem"),
    identity
  )

  /** What an expression holds of it; raises an error where the pool is known to refuse every call.
    *
    * Other faults are for the pool to judge: only calls can show that they are over.
    */
  def called: CalledFunction =
    if (described.getFaultIsFinal)
      throw new UnsupportedOperationException(s"$name cannot be called now: ${described.getFault}")
    else function.called(version)

  /** Raises an error where the function gives no table. */
  def requireTable(): Unit =
    if (function.kind != FunctionKind.FUNCTION_KIND_TABLE)
      throw new UnsupportedOperationException(
        s"$name gives no table: it is ${function.signature}"
      )

  override def bind(arguments: StructType): BoundFunction = {
    UnboundPoolFunction.checkCount(function, arguments.length)
    val actual = arguments.map(_.dataType)
    UnboundPoolFunction.checkTypes(function, actual)
    function.kind match {
      case FunctionKind.FUNCTION_KIND_SCALAR => new PoolScalar(function.binding(called, actual))
      case FunctionKind.FUNCTION_KIND_AGGREGATE =>
        new PoolAggregate(function.binding(called, actual))
      case _ =>
        throw new UnsupportedOperationException(
          s"$name gives a table: call it in FROM, or after LATERAL"
        )
    }
  }
}

object UnboundPoolFunction {

  def of(
      endpoint: String,
      description: FunctionDescription,
      version: String
  ): UnboundPoolFunction =
    new UnboundPoolFunction(description, version, PoolFunction.of(endpoint, description))

  /** Raises an error that shows the signature where a call has too many arguments, or too few. */
  def checkCount(function: PoolFunction, count: Int): Unit =
    if (count < function.required || count > function.arguments.length)
      throw new UnsupportedOperationException(
        s"${function.name} was called with $count arguments: it is ${function.signature}"
      )

  /** Raises an error where Spark would cast an argument to another value. */
  private def checkTypes(function: PoolFunction, actual: Seq[DataType]): Unit =
    actual.zip(function.arguments).foreach { case (dataType, declared) =>
      ArgumentCast
        .problem(function.name, declared.name, dataType, declared.dataType)
        .foreach(problem => throw new UnsupportedOperationException(problem))
    }
}
