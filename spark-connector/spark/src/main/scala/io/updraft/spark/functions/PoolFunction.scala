// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.functions

import java.io.ByteArrayInputStream
import java.nio.channels.Channels

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import com.google.protobuf.ByteString
import org.apache.arrow.vector.ipc.ReadChannel
import org.apache.arrow.vector.ipc.message.MessageSerializer
import org.apache.arrow.vector.types.pojo.Field
import org.apache.spark.sql.catalyst.expressions.Literal
import org.apache.spark.sql.types.{DataType, StructField, StructType}
import org.apache.spark.sql.updraft.{CalledFunction, SparkInternals}

import io.updraft.proto.v1.{FunctionDescription, FunctionKind}

/** Registered function as Spark SQL sees it.
  *
  * @param endpoint
  *   endpoint of the pool that has the function
  * @param arguments
  *   arguments in the order of a call; a field is nullable if the argument may be null
  * @param results
  *   the single result, or the columns of a table function
  * @param state
  *   state of an aggregate
  */
final case class PoolFunction(
    endpoint: String,
    description: FunctionDescription,
    arguments: Seq[StructField],
    results: Seq[StructField],
    state: Seq[StructField]
) {

  def name: String = description.getName

  def kind: FunctionKind = description.getKind

  def isDeterministic: Boolean = description.getDeterministic

  def result: DataType = results.head.dataType

  def rows: StructType = StructType(results)

  /** Return the number of required arguments. */
  def required: Int = arguments.length - description.getArgumentsWithDefault

  /** Return the default of an argument; None if the argument has no default, or if the default was
    * too large for the pool's description.
    */
  def default(position: Int): Option[Literal] =
    if (position < required) None else defaults.lift(position - required)

  /** Defaults of the last arguments. */
  private lazy val defaults: Seq[Literal] = SparkInternals.literals(
    description.getDefaultRow.toByteArray,
    StructType(arguments.drop(required))
  )

  /** Return the function's representation in an expression. */
  def called(version: String): CalledFunction =
    CalledFunction(
      endpoint,
      name,
      version,
      state.headOption.map(_.dataType),
      seesRows = description.getByRow
    )

  /** Return the facts that a call holds.
    *
    * @param actual
    *   types of the call's arguments
    */
  def binding(called: CalledFunction, actual: Seq[DataType]): FunctionBinding = FunctionBinding(
    called,
    actual,
    arguments.take(actual.length).map(_.dataType),
    result,
    isDeterministic
  )

  /** Return the signature, such as "discount(price BIGINT, percent DOUBLE = 10.0) -> DOUBLE". */
  def signature: String = {
    val defaults = Seq.fill(required)("") ++ description.getDefaultsList.asScala.map(" = " + _)
    val listed = arguments.zipAll(defaults, null, "").collect {
      case (argument, default)
          if argument != null =>
        s"${argument.name} ${PoolFunction.typed(argument)}$default"
    }
    val returned = kind match {
      case FunctionKind.FUNCTION_KIND_TABLE =>
        results.map(column => s"${column.name} ${PoolFunction.typed(column)}").mkString(
          "TABLE(",
          ", ",
          ")"
        )
      case _ => results.headOption.fold("")(PoolFunction.typed)
    }
    s"$name(${listed.mkString(", ")}) -> $returned"
  }

  /** Return the author's description, with one fact on each line. */
  def text: String = {
    val said = Seq(
      "version" -> description.getVersion,
      "owner" -> description.getOwner,
      "tags" -> description.getTagsList.asScala.mkString(", "),
      "deterministic" -> (if (isDeterministic) "" else "no"),
      (if (description.getFaultIsFinal) "fault" else "unhealthy") -> description.getFault
    ).collect { case (what, value) if value.nonEmpty => s"$what: $value" }
    (Seq(signature, description.getDoc).filter(_.nonEmpty) ++ said).mkString("\n")
  }
}

object PoolFunction {

  /** Return the function in Spark's types, or the reason why Spark cannot call it. */
  def of(endpoint: String, description: FunctionDescription): Either[String, PoolFunction] =
    if (
      description.getFaultIsFinal && description.getKind == FunctionKind.FUNCTION_KIND_UNSPECIFIED
    )
      // The pool could not import the module or could not describe the function.
      Left(description.getFault)
    else if (description.getKind == FunctionKind.FUNCTION_KIND_UNSPECIFIED)
      Left("it accepts any columns, but SQL needs their types: declare them in its type hints")
    else
      try
        Right(
          PoolFunction(
            endpoint,
            description,
            fields(description.getArgumentSchema),
            fields(description.getResultSchema),
            fields(description.getStateSchema)
          )
        )
      catch { case NonFatal(e) => Left(s"Spark does not support its types: ${e.getMessage}") }

  private def fields(schema: ByteString): Seq[StructField] =
    if (schema.isEmpty) Seq.empty
    else
      MessageSerializer
        .deserializeSchema(
          new ReadChannel(Channels.newChannel(new ByteArrayInputStream(schema.toByteArray)))
        )
        .getFields
        .asScala
        .map(field)
        .toSeq

  private def field(field: Field): StructField =
    StructField(field.getName, SparkInternals.sparkType(field), field.isNullable)

  private def typed(field: StructField): String =
    field.dataType.sql + (if (field.nullable) "" else " NOT NULL")
}
