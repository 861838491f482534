// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.groups

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.updraft.InputFiles

import io.updraft.spark.columns.{BatchLimits, GroupCut}
import io.updraft.spark.task.input.{RequestBuilder, RequestFeed}

/** Feed that reads rows, contiguous by group, into a builder: many small groups form one request, a
  * large group is spread over several. A row is copied before the next is requested.
  *
  * @param open
  *   function that returns the rows. It is called only when the first request is built, because it
  *   may have to read all of the child
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

  /** End the group; return whether the request has room for the next group. */
  private def endGroup(): Boolean = {
    builder.endGroup()
    if (row != null) boundary.enter(row)
    row != null && !cut.endsBehindGroup(builder.rows, builder.groups)
  }
}
