// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.groups

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.updraft.InputFiles

import io.updraft.spark.columns.{BatchLimits, GroupCut}
import io.updraft.spark.task.input.{RequestBuilder, RequestFeed}

/** Reads rows that lie group by group into a builder: many small groups make one request, a large
  * one is spread over many. A row is copied before the next is asked for.
  *
  * @param open
  *   gives the rows, when the first request is asked for: it may have to read all of the child
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

  /** Whether the request has room for the group that begins with the next row. */
  private def endGroup(): Boolean = {
    builder.endGroup()
    if (row != null) boundary.enter(row)
    row != null && !cut.endsBehindGroup(builder.rows, builder.groups)
  }
}
