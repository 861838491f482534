// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.reasons

import org.apache.spark.sql.catalyst.expressions.PythonFuncExpression
import org.apache.spark.sql.catalyst.plans.logical.{Command, LogicalPlan, Window}
import org.apache.spark.sql.types._
import org.apache.spark.sql.updraft.{PythonCall, ResultTypes, Variants, WorkerModules}

/** Rules that decide whether a pool can run a logical node with Python functions. If the pool
  * cannot run the node, the rules return the reason.
  */
object Support {

  /** PYTHONHASHSEED of the pool's workers, PySpark's default. */
  private val PoolHashSeed = "0"

  /** Return whether a node itself, not its children, runs Python. A command never runs Python, even
    * if its expressions contain functions, because it plans separate queries. A node that is not a
    * [[PythonNode]] runs Python only if it belongs to a batch query and has stateful functions.
    */
  def holdsPython(plan: LogicalPlan): Boolean =
    PythonNode.of(
      plan
    ).isDefined || (!plan.isInstanceOf[Command] && !plan.isStreaming && isStateful(plan))

  /** Return whether a node has stateful functions. This method does not use the node's name,
    * because the name differs between Spark versions.
    */
  private def isStateful(plan: LogicalPlan): Boolean =
    FunctionKinds.fallbackReason(plan.expressions, isWindow = false).contains(FallbackReason.State)

  /** Return why the pool cannot run a node; None if it can. */
  def fallbackReason(plan: LogicalPlan): Option[FallbackReason] =
    FunctionKinds
      .fallbackReason(plan.expressions, plan.isInstanceOf[Window])
      .orElse(WorkerModules.replaced.map(FallbackReason.WorkerModule.about))
      .orElse(PythonNode.of(plan) match {
        case Some(PythonNode.MapRows(_, _, _, true, _)) => Some(FallbackReason.Barrier)
        case Some(PythonNode.MapRows(_, _, _, _, true)) => Some(FallbackReason.ResourceProfile)
        case Some(node) => hashSeed(node.functions).orElse(types(node.sent))
        case None => Some(FallbackReason.UnknownKind.about(plan.nodeName))
      })

  private def hashSeed(udfs: Seq[PythonFuncExpression]): Option[FallbackReason] =
    PythonCall.hashSeeds(udfs).find(_ != PoolHashSeed).map(FallbackReason.HashSeed.about)

  private def types(all: Seq[DataType]): Option[FallbackReason] =
    all.find(!travels(_)).map(FallbackReason.ofType)

  /** Return whether Arrow carries every value of a type to the pool and back unchanged. */
  private def travels(dataType: DataType): Boolean = dataType match {
    case BooleanType | ByteType | ShortType | IntegerType | LongType => true
    case FloatType | DoubleType | _: DecimalType => true
    case _: CharType | _: VarcharType => false
    case _: StringType | BinaryType | DateType | TimestampType | TimestampNTZType => true
    case NullType | _: YearMonthIntervalType | _: DayTimeIntervalType => true
    case variant if Variants.isVariant(variant) => true
    case time if ResultTypes.isTime(time) => true
    case ArrayType(element, _) => travels(element)
    case MapType(key, value, _) => travels(key) && travels(value)
    case StructType(fields) =>
      fields.map(_.name).distinct.length == fields.length &&
      fields.forall(field => travels(field.dataType))
    case udt: UserDefinedType[_] => travels(udt.sqlType)
    case _ => false
  }
}
