// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.plan

import org.apache.spark.SparkException
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression
import org.apache.spark.sql.catalyst.planning.PhysicalAggregation
import org.apache.spark.sql.catalyst.plans.Inner
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.updraft.{CalledFunction, SparkInternals}

/** Rule that splits an aggregation with registered aggregates. It makes one aggregation for each
  * registered aggregate and one for all other functions, and joins them by the keys. The rule runs
  * after the rules that push filters and projections down. It runs before Spark's own rule for
  * DISTINCT, because that rule adds nulls to the arguments and expects aggregates to ignore nulls.
  */
object RegisteredAggregations extends Rule[LogicalPlan] {

  override def apply(plan: LogicalPlan): LogicalPlan = plan.transformUp {
    // Leave the aggregations of a stream to Spark, which refuses them.
    case PhysicalAggregation(keys, functions, results, child)
        if functions.exists(registered(_).nonEmpty) && !child.isStreaming =>
      Project(results, joined(keys, functions, child))
  }

  private def registered(aggregate: AggregateExpression): Option[PythonUDAF] =
    Some(aggregate.aggregateFunction).collect {
      case function: PythonUDAF if CalledFunction.of(function).isDefined => function
    }

  private def joined(
      keys: Seq[NamedExpression],
      functions: Seq[AggregateExpression],
      child: LogicalPlan
  ): LogicalPlan = {
    val (ours, others) = functions.partition(registered(_).nonEmpty)
    val parts = ours.map(Seq(_)) ++ Option(others).filter(_.nonEmpty)
    if (parts.length > 1 && !child.deterministic)
      throw new SparkException(
        s"cannot compute ${ours.map(_.sql).mkString(", ")} together with other aggregates, because the input rows " +
          "differ each time that they are read: persist them first"
      )
    val first = part(keys, keys.map(_.toAttribute), parts.head, child)
    parts.tail.foldLeft(first) { (left, functions) =>
      val own = keys.map(_.toAttribute.newInstance())
      val condition = keys
        .zip(own)
        .map { case (key, column) => EqualNullSafe(key.toAttribute, column): Expression }
        .reduceOption(And)
      Join(left, part(keys, own, functions, child), Inner, condition, JoinHint.NONE)
    }
  }

  /** Return an aggregation of these functions. The keys have the given names, and the results have
    * the query's names.
    */
  private def part(
      keys: Seq[NamedExpression],
      names: Seq[Attribute],
      functions: Seq[AggregateExpression],
      child: LogicalPlan
  ): LogicalPlan = {
    val values = keys.map {
      case Alias(value, _) => value
      case other => other
    }
    val columns = values.zip(names).map {
      case (same: Attribute, name) if same.exprId == name.exprId => same
      case (value, name) => Alias(value, name.name)(exprId = name.exprId)
    }
    functions match {
      case Seq(function) if registered(function).nonEmpty =>
        onPool(columns, function, function.resultAttribute, child)
      case _ =>
        val results = functions.map { function =>
          Alias(function, function.resultAttribute.name)(exprId = function.resultAttribute.exprId)
        }
        Aggregate(values, columns ++ results, child)
    }
  }

  private def onPool(
      keys: Seq[NamedExpression],
      function: AggregateExpression,
      result: Attribute,
      child: LogicalPlan
  ): LogicalPlan = {
    val rows = if (function.isDistinct) DistinctRows.of(keys, function, child)
    else AggregatedRows(keys, function.aggregateFunction.children, function.filter, child)
    val called = function.aggregateFunction.withNewChildren(rows.arguments)
    val references = AttributeSet(rows.keys ++ rows.arguments ++ rows.filter)
    RegisteredAggregation(
      rows.keys,
      called.asInstanceOf[PythonUDAF],
      rows.filter,
      result,
      Project(rows.plan.output.filter(references.contains), rows.plan)
    )
  }
}

/** Input of a registered aggregate: a plan of rows, and the expressions over these rows that the
  * aggregate reads.
  */
final case class AggregatedRows(
    keys: Seq[NamedExpression],
    arguments: Seq[Expression],
    filter: Option[Expression],
    plan: LogicalPlan
)

/** Rows of a call with DISTINCT. */
object DistinctRows {

  /** Return one row for each distinct combination of keys and arguments. If the call's FILTER
    * excludes rows of a group, these rows become one row, so that the group remains even without
    * other rows.
    */
  def of(
      keys: Seq[NamedExpression],
      function: AggregateExpression,
      child: LogicalPlan
  ): AggregatedRows = {
    val filter = function.filter.map { condition =>
      Alias(Coalesce(Seq(condition, Literal.FalseLiteral)), "counted")()
    }
    val arguments = function.aggregateFunction.children.map { value =>
      val counted = filter.fold(value) { column =>
        If(column.child, value, Literal.create(null, value.dataType))
      }
      Alias(counted, "argument")()
    }
    val columns = keys ++ filter ++ arguments
    val values = columns.map {
      case Alias(value, _) => value
      case other => other
    }
    AggregatedRows(
      keys.map(_.toAttribute),
      arguments.map(_.toAttribute),
      filter.map(_.toAttribute),
      Aggregate(values, columns, child)
    )
  }
}

/** Logical aggregation with one registered aggregate. It is not an Aggregate, because Spark's rules
  * for Aggregate nodes are valid only for Spark's own functions. One such rule merges the Aggregate
  * nodes of several subqueries.
  *
  * @param filter
  *   condition that selects the rows to accumulate; a group exists even if none of its rows is
  *   selected
  * @param result
  *   column of the results
  */
case class RegisteredAggregation(
    keys: Seq[NamedExpression],
    function: PythonUDAF,
    filter: Option[Expression],
    result: Attribute,
    child: LogicalPlan
) extends UnaryNode {

  override def output: Seq[Attribute] = keys.map(_.toAttribute) :+ result

  override def producedAttributes: AttributeSet = AttributeSet(output) -- child.outputSet

  override def maxRows: Option[Long] = if (keys.isEmpty) Some(1L) else child.maxRows

  /** Raise an error if Spark and the pool disagree on which values of a key are equal. They
    * disagree on strings with a collation, because the pool compares the bytes.
    */
  def requireKeys(): Unit =
    keys.find(key => SparkInternals.isCollated(key.dataType)).foreach { key =>
      throw new SparkException(
        s"${function.name}() cannot group by ${key.sql}, whose collation only Spark supports: group by a cast of it to STRING"
      )
    }

  override protected def withNewChildInternal(newChild: LogicalPlan): RegisteredAggregation =
    copy(child = newChild)
}
