// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.groups

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.codegen.GenerateUnsafeProjection

import io.updraft.spark.columns.GroupCut
import io.updraft.spark.task.input.Request

/** Side of a cogroup. It reads the child's rows into a builder, group by group, and copies a row
  * before it requests the next row.
  */
final class GroupedSide(childRows: Iterator[InternalRow], input: GroupedInput, partition: Int)
    extends AutoCloseable {
  private[this] val builder = input.builder(partition)
  private[this] val boundary = input.boundary
  private[this] val cut = new GroupCut(input.spec.limits, () => builder.size)
  private[this] val projection = GenerateUnsafeProjection.generate(input.keys, input.spec.child)
  private[this] var rows: Iterator[InternalRow] = _
  private[this] var row: InternalRow = _
  private[this] var nextKey: InternalRow = _

  /** Go to the first group. */
  def start(): Unit = {
    rows = input.groupedRows.of(childRows)
    advance()
    enter()
  }

  /** Return the key of the next group; null at the end of the input. */
  def key: InternalRow = nextKey

  /** Append rows of the group until the request is full or the group has ended. Return whether the
    * group has ended.
    */
  def copyGroup(): Boolean = {
    var ended = false
    var full = false
    while (!ended && !full) {
      builder.append(row)
      advance()
      ended = row == null || boundary.isCrossedBy(row)
      full = !ended && cut.endsInsideGroup(builder.rows)
    }
    if (ended) endGroup()
    ended
  }

  private def endGroup(): Unit = {
    builder.endGroup()
    enter()
  }

  /** Add a group without rows on this side. */
  def skipGroup(): Unit = builder.endGroup()

  /** Return whether the request should end after the group that just ended. */
  def isFull: Boolean = cut.endsBehindGroup(builder.rows, builder.groups)

  def isEmpty: Boolean = builder.rows == 0 && builder.groups == 0

  def request(file: AnyRef): Request = {
    cut.advance()
    builder.finish(file)
  }

  private def advance(): Unit = row = if (rows.hasNext) rows.next() else null

  private def enter(): Unit =
    if (row == null) {
      nextKey = null
    } else {
      boundary.enter(row)
      nextKey = projection(boundary.first)
    }

  override def close(): Unit = builder.close()
}
