// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.groups

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.codegen.GenerateOrdering

/** Tells where a group ends among rows that are sorted by their group. */
trait GroupBoundary {

  /** A group begins with this row. */
  def enter(row: InternalRow): Unit

  /** Whether this row is of another group. */
  def isCrossedBy(row: InternalRow): Boolean
}

/** Rows are of one group when Spark's ordering has them equal, as its own operators over groups see
  * it: null is null, NaN is NaN, 0.0 is -0.0.
  */
class OrderedBoundary(keys: Seq[Expression], rows: Seq[Attribute]) extends GroupBoundary {
  private[this] val ordering = GenerateOrdering.generate(keys.map(SortOrder(_, Ascending)), rows)
  private[this] var firstRow: InternalRow = _

  /** A copy of the first row of the group. */
  def first: InternalRow = firstRow

  override def enter(row: InternalRow): Unit = firstRow = row.copy()

  override def isCrossedBy(row: InternalRow): Boolean = ordering.compare(firstRow, row) != 0
}

/** Rows are of one group when their keys are the same bytes, as Spark's window operators see it. */
final class SameBytesBoundary(keys: Seq[Expression], rows: Seq[Attribute]) extends GroupBoundary {
  private[this] val keyOf = UnsafeProjection.create(keys, rows)
  private[this] var key: UnsafeRow = _

  override def enter(row: InternalRow): Unit = key = keyOf(row).copy()

  override def isCrossedBy(row: InternalRow): Boolean = keyOf(row) != key
}
