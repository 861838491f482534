// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.reasons

import org.apache.spark.sql.catalyst.expressions.{
  Attribute,
  Expression,
  PythonFuncExpression,
  PythonUDAF,
  PythonUDF
}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.types._
import org.apache.spark.sql.updraft.{PythonCall, ResultTypes, WorkerModules}

/** Rules that decide whether a pool can run a logical node with Python functions, and give the
  * reason if it cannot.
  */
object Support {

  /** PYTHONHASHSEED of the pool's workers, PySpark's default. */
  private val PoolHashSeed = "0"

  /** Return whether a node itself, not its children, runs Python. Commands and unknown nodes do
    * not, whatever their expressions contain, because they plan their own queries.
    */
  def holdsPython(plan: LogicalPlan): Boolean = plan match {
    case _: BaseEvalPython | _: BaseEvalPythonUDTF | _: MapInArrow | _: MapInPandas => true
    case _: FlatMapGroupsInPandas | _: FlatMapGroupsInArrow => true
    case _: FlatMapCoGroupsInPandas | _: FlatMapCoGroupsInArrow => true
    case _: Command => false
    case plan if plan.isStreaming => false
    case _: Aggregate => PythonAggregate.unapply(plan).isDefined
    case _: Window => PythonWindow.unapply(plan).isDefined
    // Stateful functions of a batch query; the name of their node differs between Spark versions.
    case _ =>
      FunctionKinds.fallbackReason(
        plan.expressions,
        isWindow = false
      ).contains(FallbackReason.State)
  }

  /** Return why the pool cannot run a node; None if it can. */
  def fallbackReason(plan: LogicalPlan): Option[FallbackReason] =
    FunctionKinds
      .fallbackReason(plan.expressions, plan.isInstanceOf[Window])
      .orElse(WorkerModules.replaced.map(FallbackReason.WorkerModule.about))
      .orElse(ofNode(plan))

  private def ofNode(plan: LogicalPlan): Option[FallbackReason] = plan match {
    case ArrowEvalPython(udfs, _, child, _) =>
      hashSeed(udfs)
        .orElse(types(arguments(udfs)))
        .orElse(types(child.output.map(_.dataType)))
    case BatchEvalPython(udfs, _, child) =>
      hashSeed(udfs)
        .orElse(types(udfs.map(_.dataType) ++ child.output.map(_.dataType)))
    case table: BaseEvalPythonUDTF =>
      hashSeed(Seq(table.udtf))
        .orElse(types(table.resultAttrs.map(_.dataType) ++ table.child.output.map(_.dataType)))
    case MapInArrow(function, _, child, isBarrier, profile) =>
      mapFamily(function, child, isBarrier, profile.isDefined)
    case MapInPandas(function, _, child, isBarrier, profile) =>
      mapFamily(function, child, isBarrier, profile.isDefined)
    case FlatMapGroupsInPandas(_, function, _, child) => ofRows(function, child.output)
    case FlatMapGroupsInArrow(_, function, _, child) => ofRows(function, child.output)
    case FlatMapCoGroupsInPandas(_, _, function, _, left, right) =>
      ofRows(function, left.output ++ right.output)
    case FlatMapCoGroupsInArrow(_, _, function, _, left, right) =>
      ofRows(function, left.output ++ right.output)
    case PythonAggregate(_, functions, _, _) =>
      fold(functions.map(_.aggregateFunction.asInstanceOf[PythonUDAF]))
    case PythonWindow(windows, _, _, _) =>
      fold(windows.flatMap(_.collect { case udf: PythonUDAF => udf }))
    case other => Some(FallbackReason.UnknownKind.about(other.nodeName))
  }

  private def mapFamily(
      function: Expression,
      child: LogicalPlan,
      isBarrier: Boolean,
      hasProfile: Boolean
  ): Option[FallbackReason] =
    if (isBarrier) Some(FallbackReason.Barrier)
    else if (hasProfile) Some(FallbackReason.ResourceProfile)
    else ofRows(function, child.output)

  /** Return why the pool cannot run a function of whole rows. */
  private def ofRows(
      function: Expression,
      rows: Seq[Attribute]
  ): Option[FallbackReason] = function match {
    case udf: PythonUDF =>
      hashSeed(Seq(udf)).orElse(types(rows.map(_.dataType)))
    case other => Some(FallbackReason.UnknownKind.about(other.nodeName))
  }

  private def fold(udfs: Seq[PythonUDAF]): Option[FallbackReason] =
    hashSeed(udfs).orElse(types(arguments(udfs)))

  private def hashSeed(udfs: Seq[PythonFuncExpression]): Option[FallbackReason] =
    PythonCall.hashSeeds(udfs).find(_ != PoolHashSeed).map(FallbackReason.HashSeed.about)

  private def arguments(udfs: Seq[PythonFuncExpression]): Seq[DataType] =
    PythonCall.of(udfs).inputs.map(_.dataType)

  private def types(all: Seq[DataType]): Option[FallbackReason] =
    all.find(!travels(_)).map(FallbackReason.ofType)

  /** Return whether Arrow carries every value of a type to the pool and back unchanged. */
  private def travels(dataType: DataType): Boolean = dataType match {
    case BooleanType | ByteType | ShortType | IntegerType | LongType => true
    case FloatType | DoubleType | _: DecimalType => true
    case _: CharType | _: VarcharType => false
    case _: StringType | BinaryType | DateType | TimestampType | TimestampNTZType => true
    case NullType | _: YearMonthIntervalType | _: DayTimeIntervalType => true
    case VariantType => true
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
