// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.exchange

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.codegen.GenerateOrdering
import org.apache.spark.sql.catalyst.expressions.{Ascending, Attribute, Expression, SortOrder}

/** Tells where a group ends among rows that are sorted by their group. Rows are of one group when
  * Spark's ordering has them equal, as its own operators see it: null is null, NaN is NaN, 0.0 is
  * -0.0.
  */
final class GroupBoundary(keys: Seq[Expression], rows: Seq[Attribute]) {
  private[this] val ordering = GenerateOrdering.generate(keys.map(SortOrder(_, Ascending)), rows)
  private[this] var firstRow: InternalRow = _

  /** A copy of the first row of the group. */
  def first: InternalRow = firstRow

  /** A group begins with this row. */
  def enter(row: InternalRow): Unit = firstRow = row.copy()

  /** Whether this row is of another group. */
  def isCrossedBy(row: InternalRow): Boolean = ordering.compare(firstRow, row) != 0
}
