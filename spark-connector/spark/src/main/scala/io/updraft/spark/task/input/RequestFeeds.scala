// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.input

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.updraft.InputFiles
import org.apache.spark.sql.vectorized.ColumnarBatch

/** Feed that reads the child into a builder until a request is full, the file changes or the input
  * ends.
  */
abstract class RequestFeed(builder: RequestBuffer, files: InputFiles) extends RequestSource {

  /** Append input until the request is full. Return the file block from which all rows of the
    * request come.
    */
  protected def fill(): AnyRef

  override final def next(): Option[Request] = {
    val file = files.ofChild(fill())
    if (builder.rows > 0) Some(builder.finish(file))
    else {
      builder.inputEnded()
      None
    }
  }

  override def setMostRows(rows: Int): Unit = builder.setMostRows(rows)

  override def close(): Unit = builder.close()
}

/** Feed from a columnar child. The feed copies a batch before it requests the next batch. */
final class ColumnarFeed(
    input: Iterator[ColumnarBatch],
    builder: RequestBuffer,
    files: InputFiles
) extends RequestFeed(builder, files) {
  private[this] var batch: ColumnarBatch = _
  private[this] var position = 0
  private[this] var fileOfBatch: AnyRef = _

  override protected def fill(): AnyRef = {
    var file = fileOfBatch
    var open = true
    while (open && hasRows()) {
      if (builder.rows == 0) file = fileOfBatch
      open = file.eq(fileOfBatch)
      if (open) {
        copy()
        open = !builder.isFull
      }
    }
    file
  }

  private def hasRows(): Boolean = {
    while ((batch == null || position == batch.numRows()) && input.hasNext) {
      batch = input.next()
      position = 0
      fileOfBatch = files.current
    }
    batch != null && position < batch.numRows()
  }

  private def copy(): Unit = {
    val count = math.min(batch.numRows() - position, builder.room)
    builder.append(batch, position, count)
    position += count
  }
}

/** Feed from a child that returns rows. The feed copies a row before it requests the next row. */
final class RowFeed(input: Iterator[InternalRow], builder: RequestBuffer, files: InputFiles)
    extends RequestFeed(builder, files) {
  private[this] var row: InternalRow = _
  private[this] var fileOfRow: AnyRef = _
  private[this] var followsFiles = false

  override protected def fill(): AnyRef = {
    var open = row != null || advance()
    followsFiles = files.readsFiles
    fileOfRow = files.current
    val file = fileOfRow
    while (open) {
      var left = builder.room
      while (open && left > 0) {
        builder.append(row)
        left -= 1
        open = advance() && fileOfRow.eq(file)
      }
      if (open) open = !builder.isFull
    }
    file
  }

  private def advance(): Boolean =
    if (input.hasNext) {
      row = input.next()
      if (followsFiles) fileOfRow = files.current
      true
    } else {
      row = null
      false
    }
}
