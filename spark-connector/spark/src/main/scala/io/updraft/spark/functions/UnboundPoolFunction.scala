// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.functions

import org.apache.spark.sql.catalyst.expressions.{Expression, NamedArgumentExpression}
import org.apache.spark.sql.connector.catalog.functions.{BoundFunction, UnboundFunction}
import org.apache.spark.sql.types.{DataType, StructType}
import org.apache.spark.sql.updraft.{ArgumentCast, CalledFunction}

import io.updraft.proto.v1.{FunctionDescription, FunctionKind}

/** Registered function before it is called with arguments.
  *
  * @param version
  *   version named by the query; empty for the pool's default version
  */
final class UnboundPoolFunction private (
    described: FunctionDescription,
    version: String,
    known: Either[String, PoolFunction]
) extends UnboundFunction {

  override def name(): String = described.getName

  override def description(): String = known.fold(
    problem => s"Spark cannot call ${described.getName}: $problem",
    _.text
  )

  /** Return the function in Spark's types; raise an error if Spark cannot call it. */
  def function: PoolFunction = known.fold(
    problem => throw new UnsupportedOperationException(s"$name cannot be called: $problem"),
    identity
  )

  /** Return the function's representation in an expression. Raise an error if the pool is known to
    * refuse every call.
    *
    * A fault that is not final raises no error here, because the fault may be over when the
    * function is called.
    */
  def called: CalledFunction =
    if (described.getFaultIsFinal)
      throw new UnsupportedOperationException(s"$name cannot be called now: ${described.getFault}")
    else function.called(version)

  /** Raise an error if the function does not return a table. */
  def requireTable(): Unit =
    if (function.kind != FunctionKind.FUNCTION_KIND_TABLE)
      throw new UnsupportedOperationException(
        s"$name does not return a table: its signature is ${function.signature}"
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
          s"$name returns a table: call it in FROM, or after LATERAL"
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

  /** Raise an error that shows the signature if a call has too many or too few arguments. */
  def checkCount(function: PoolFunction, count: Int): Unit =
    if (count < function.required || count > function.arguments.length)
      throw new UnsupportedOperationException(
        s"${function.name} was called with $count arguments: its signature is ${function.signature}"
      )

  /** Raise an error if Spark would change an argument's value by casting it. */
  private def checkTypes(function: PoolFunction, actual: Seq[DataType]): Unit =
    actual.zip(function.arguments).foreach { case (dataType, declared) =>
      ArgumentCast
        .problem(function.name, declared.name, dataType, declared.dataType)
        .foreach(problem => throw new UnsupportedOperationException(problem))
    }
}

/** Conversion of a call's arguments to the order of the signature. If an argument is omitted and a
  * later argument is given, the conversion fills in the default. The pool fills in the defaults of
  * arguments omitted at the end.
  */
object NamedArguments {

  /** Return the arguments in order. If the names do not fit the signature, raise an error that
    * shows the signature.
    */
  def inOrder(function: PoolFunction, arguments: Seq[Expression]): Seq[Expression] = {
    def refuse(problem: String): Nothing = throw new UnsupportedOperationException(
      s"cannot call ${function.name}: $problem; the signature is ${function.signature}"
    )
    val (positional, rest) = arguments.span(!_.isInstanceOf[NamedArgumentExpression])
    val known = function.arguments.map(_.name)
    val named = rest.map {
      case NamedArgumentExpression(name, value) =>
        val position = known.indexWhere(_.equalsIgnoreCase(name))
        if (position < 0) refuse(s"it has no argument $name")
        if (position < positional.length) refuse(s"argument $name is given twice")
        position -> value
      case _ => refuse("a positional argument follows a named one")
    }
    val byPosition = named.toMap
    if (byPosition.size < named.length) refuse("an argument is given twice")
    val last = (byPosition.keys ++ Seq(positional.length - 1)).max
    positional ++ (positional.length to last).map { position =>
      byPosition.get(position).orElse(function.default(position)).getOrElse(
        refuse(s"argument ${known(position)} is missing, but a later one is given")
      )
    }
  }
}
