// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.plan

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.execution.{LeafExecNode, SortExec, SortPrefixUtils, SparkPlan}
import org.apache.spark.sql.types._
import org.apache.spark.sql.updraft.Collations

import io.updraft.spark.task.groups.{GroupMetrics, GroupedRows}

/** Ordering of an operator's input by groups, in the order of the keys. The operator groups the
  * rows itself if it can; otherwise, it requires Spark to sort them.
  */
object GroupOrder {

  /** Return the ordering that the operator requires of its child. */
  def required(keys: Seq[Expression]): Seq[SortOrder] =
    if (canGroup(keys)) Nil else ascending(keys)

  /** Return how the operator groups its rows. */
  def groupedRows(keys: Seq[Expression], child: SparkPlan, metrics: GroupMetrics): GroupedRows =
    if (!canGroup(keys) || SortOrder.orderingSatisfies(child.outputOrdering, ascending(keys)))
      GroupedRows.FromChild
    else {
      val order = ascending(keys)
      val sort = SortExec(order, global = false, UnsortedRows(child.output))
      val radix = sort.conf.enableRadixSort && order.length == 1 &&
        SortPrefixUtils.canSortFullyWithPrefix(order.head)
      GroupedRows.ByKeys(keys, child.output, sort, radix && keys.head.nullable, metrics)
    }

  private def canGroup(keys: Seq[Expression]) = keys.forall(key => hasOneForm(key.dataType))

  private def ascending(keys: Seq[Expression]) = keys.map(SortOrder(_, Ascending))

  /** Return whether values of a type are equal if and only if their bytes are. */
  private def hasOneForm(dataType: DataType): Boolean = dataType match {
    case text: StringType => Collations.isBinaryStable(text)
    case BooleanType | ByteType | ShortType | IntegerType | LongType | DateType | TimestampType |
        TimestampNTZType | BinaryType => true
    case _: DecimalType | _: YearMonthIntervalType | _: DayTimeIntervalType => true
    case _ => false
  }
}

/** Placeholder for the child of a sort that runs inside a task. */
private case class UnsortedRows(output: Seq[Attribute]) extends LeafExecNode {
  override protected def doExecute(): RDD[InternalRow] =
    throw new UnsupportedOperationException(
      "this placeholder has no rows: each task sorts the rows of its own partition"
    )
}
