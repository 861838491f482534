// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.reasons

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression
import org.apache.spark.sql.catalyst.planning.{PhysicalAggregation, PhysicalWindow}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.types.DataType
import org.apache.spark.sql.updraft.SparkInternals.EvalType
import org.apache.spark.sql.updraft.{MapCogroupsInArrow, MapGroupsInArrow, MapInBatch, PythonCall}

/** Logical node with Python functions that has an operator on the pool. The cases of this class are
  * the only list of such nodes. [[Support]] uses the list to decide where a node runs, and the
  * planner strategy uses the list to build the operators.
  *
  * @param columns
  *   types of the columns that are sent to the pool or come back
  */
sealed abstract class PythonNode(
    val functions: Seq[PythonFuncExpression],
    columns: => Seq[DataType]
) {
  def sent: Seq[DataType] = columns
}

object PythonNode {

  final case class Eval(
      udfs: Seq[PythonUDF],
      results: Seq[Attribute],
      child: LogicalPlan,
      evalType: Int
  ) extends PythonNode(
        udfs,
        (if (evalType == EvalType.Pickled) udfs.map(_.dataType) else arguments(udfs)) ++ typesOf(
          child
        )
      )

  final case class Table(node: BaseEvalPythonUDTF)
      extends PythonNode(Seq(node.udtf), node.resultAttrs.map(_.dataType) ++ typesOf(node.child))

  final case class MapRows(
      function: PythonUDF,
      output: Seq[Attribute],
      child: LogicalPlan,
      isBarrier: Boolean,
      hasProfile: Boolean
  ) extends PythonNode(Seq(function), typesOf(child))

  final case class MapGroups(
      keys: Seq[Attribute],
      function: PythonUDF,
      output: Seq[Attribute],
      child: LogicalPlan,
      isArrow: Boolean
  ) extends PythonNode(Seq(function), typesOf(child))

  final case class MapCogroups(
      leftKeys: Seq[Attribute],
      rightKeys: Seq[Attribute],
      function: PythonUDF,
      output: Seq[Attribute],
      left: LogicalPlan,
      right: LogicalPlan
  ) extends PythonNode(Seq(function), typesOf(left) ++ typesOf(right))

  /** Aggregate whose functions are all Python functions of one kind, with the parts that Spark's
    * own strategy uses. An aggregate that Spark refuses is not a node of this class, so that Spark
    * itself reports the reason.
    */
  final case class Aggregated(
      keys: Seq[NamedExpression],
      aggregates: Seq[AggregateExpression],
      results: Seq[NamedExpression],
      child: LogicalPlan
  ) extends PythonNode(udafs(aggregates), arguments(udafs(aggregates)))

  /** Window whose functions are all Python functions of one kind. */
  final case class Windowed(
      windows: Seq[NamedExpression],
      partitions: Seq[Expression],
      order: Seq[SortOrder],
      child: LogicalPlan
  ) extends PythonNode(udafs(windows), arguments(udafs(windows)))

  /** Return the part of a plan node itself, not of its children, that runs in Python. Return None
    * if nothing runs in Python or the node has no operator on the pool.
    */
  def of(plan: LogicalPlan): Option[PythonNode] = Some(plan).collect {
    case ArrowEvalPython(udfs, results, child, evalType) => Eval(udfs, results, child, evalType)
    case BatchEvalPython(udfs, results, child) => Eval(udfs, results, child, EvalType.Pickled)
    case table: BaseEvalPythonUDTF => Table(table)
    case MapInBatch(function, output, child, isBarrier, hasProfile) =>
      MapRows(function, output, child, isBarrier, hasProfile)
    case FlatMapGroupsInPandas(keys, function: PythonUDF, output, child) =>
      MapGroups(keys, function, output, child, isArrow = false)
    case MapGroupsInArrow(keys, function, output, child) =>
      MapGroups(keys, function, output, child, isArrow = true)
    case node @ FlatMapCoGroupsInPandas(_, _, function: PythonUDF, output, left, right) =>
      MapCogroups(node.leftAttributes, node.rightAttributes, function, output, left, right)
    case MapCogroupsInArrow(leftKeys, rightKeys, function, output, left, right) =>
      MapCogroups(leftKeys, rightKeys, function, output, left, right)
    case PhysicalAggregation(keys, functions, results, child)
        if !plan.isStreaming && areOfOneKind(functions) =>
      Aggregated(keys, functions, results, child)
    case PhysicalWindow(WindowFunctionType.Python, windows, partitions, order, child)
        if !plan.isStreaming && haveOneKind(windows) =>
      Windowed(windows, partitions, order, child)
  }

  private def areOfOneKind(aggregates: Seq[AggregateExpression]): Boolean =
    aggregates.forall(_.aggregateFunction.isInstanceOf[PythonUDAF]) &&
      udafs(aggregates).map(_.evalType).distinct.length == 1

  private def haveOneKind(windows: Seq[NamedExpression]): Boolean =
    udafs(windows).map(_.evalType).distinct match {
      case Seq(kind) => FunctionKinds.inWindow.contains(kind)
      case _ => false
    }

  private def udafs(expressions: Seq[Expression]): Seq[PythonUDAF] =
    expressions.flatMap(_.collect { case udf: PythonUDAF => udf })

  private def typesOf(rows: LogicalPlan): Seq[DataType] = rows.output.map(_.dataType)

  private def arguments(udfs: Seq[PythonFuncExpression]): Seq[DataType] =
    PythonCall.of(udfs).inputs.map(_.dataType)
}
