// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.groups

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.codegen.GenerateOrdering

/** Test for where a group ends among rows sorted by group. */
trait GroupBoundary {

  /** Begin a group with this row. */
  def enter(row: InternalRow): Unit

  /** Return whether this row belongs to another group. */
  def isCrossedBy(row: InternalRow): Boolean
}

/** Boundary by Spark's ordering, as its own operators over groups use it: null equals null, NaN
  * equals NaN, 0.0 equals -0.0.
  */
class OrderedBoundary(keys: Seq[Expression], rows: Seq[Attribute]) extends GroupBoundary {
  private[this] val ordering = GenerateOrdering.generate(keys.map(SortOrder(_, Ascending)), rows)
  private[this] var firstRow: InternalRow = _

  /** Return a copy of the first row of the group. */
  def first: InternalRow = firstRow

  override def enter(row: InternalRow): Unit = firstRow = row.copy()

  override def isCrossedBy(row: InternalRow): Boolean = ordering.compare(firstRow, row) != 0
}

/** Boundary by the bytes of the keys, as Spark's window operators use it. */
final class SameBytesBoundary(keys: Seq[Expression], rows: Seq[Attribute]) extends GroupBoundary {
  private[this] val keyOf = UnsafeProjection.create(keys, rows)
  private[this] var key: UnsafeRow = _

  override def enter(row: InternalRow): Unit = key = keyOf(row).copy()

  override def isCrossedBy(row: InternalRow): Boolean = keyOf(row) != key
}
