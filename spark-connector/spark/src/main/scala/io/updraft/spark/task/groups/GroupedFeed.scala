// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.groups

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.codegen.GenerateOrdering
import org.apache.spark.sql.updraft.InputFiles

import io.updraft.spark.columns.{BatchLimits, GroupCut}
import io.updraft.spark.task.input.{RequestBuilder, RequestFeed}

/** Test that tells where a group ends in rows sorted by group. */
trait GroupBoundary {

  /** Begin a group with this row. */
  def enter(row: InternalRow): Unit

  /** Return whether this row belongs to another group. */
  def isCrossedBy(row: InternalRow): Boolean
}

/** Boundary by Spark's ordering, as in Spark's own operators over groups: null equals null, NaN
  * equals NaN, and 0.0 equals -0.0.
  */
class OrderedBoundary(keys: Seq[Expression], rows: Seq[Attribute]) extends GroupBoundary {
  private[this] val ordering = GenerateOrdering.generate(keys.map(SortOrder(_, Ascending)), rows)
  private[this] var firstRow: InternalRow = _

  /** Return a copy of the first row of the group. */
  def first: InternalRow = firstRow

  override def enter(row: InternalRow): Unit = firstRow = row.copy()

  override def isCrossedBy(row: InternalRow): Boolean = ordering.compare(firstRow, row) != 0
}

/** Boundary by the bytes of the keys, as in Spark's window operators. */
final class SameBytesBoundary(keys: Seq[Expression], rows: Seq[Attribute]) extends GroupBoundary {
  private[this] val keyOf = UnsafeProjection.create(keys, rows)
  private[this] var key: UnsafeRow = _

  override def enter(row: InternalRow): Unit = key = keyOf(row).copy()

  override def isCrossedBy(row: InternalRow): Boolean = keyOf(row) != key
}

/** Feed that reads rows, contiguous by group, into a builder. Many small groups form one request,
  * and a large group is spread over several requests. The feed copies a row before it requests the
  * next row.
  *
  * @param open
  *   function that returns the rows. The function may read all of the child's rows first, so the
  *   feed calls it only when it builds the first request
  */
final class GroupedFeed(
    open: () => Iterator[InternalRow],
    boundary: GroupBoundary,
    builder: RequestBuilder,
    limits: BatchLimits,
    files: InputFiles
) extends RequestFeed(builder, files) {
  private[this] val cut = new GroupCut(limits, () => builder.size)
  private[this] var input: Iterator[InternalRow] = _
  private[this] var row: InternalRow = _

  override protected def fill(): AnyRef = {
    if (input == null) start()
    var file: AnyRef = null
    var open = row != null
    while (open) {
      builder.append(row)
      if (builder.rows == 1) file = files.current
      advance()
      open =
        if (row == null || boundary.isCrossedBy(row)) endGroup()
        else !cut.endsInsideGroup(builder.rows)
    }
    cut.advance()
    file
  }

  private def start(): Unit = {
    input = open()
    advance()
    if (row != null) boundary.enter(row)
  }

  private def advance(): Unit = row = if (input.hasNext) input.next() else null

  /** End the group. Return whether the request has room for the next group. */
  private def endGroup(): Boolean = {
    builder.endGroup()
    if (row != null) boundary.enter(row)
    row != null && !cut.endsBehindGroup(builder.rows, builder.groups)
  }
}
