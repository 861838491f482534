// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.input

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.updraft.InputFiles

import io.updraft.spark.columns.ColumnBuilder

/** Generated code of a child's stage that writes rows straight into the columns of requests. */
trait FusedCode extends Serializable {

  /** Start the code in a task. The code writes the rows of `input` to `sink`. Whenever the sink
    * pauses, the returned iterator has one more row, which is empty.
    */
  def start(partition: Int, input: Iterator[InternalRow], sink: RowSink): Iterator[InternalRow]
}

/** Columns into which generated code writes one row after another. The code runs until the sink
  * pauses.
  */
final class RowSink(columns: Array[ColumnBuilder], files: InputFiles) {
  private[this] var count = 0
  private[this] var left = 0
  private[this] var followsFiles = false
  private[this] var lastFile: AnyRef = _
  private[this] var firstFile: AnyRef = _
  private[this] var later = Seq.newBuilder[LaterFile]

  /** Return a column. Its method `put` is called once for each row, with that row's value. */
  def column(index: Int): ColumnBuilder = columns(index)

  /** End a row, after each column has received its value. Return whether the sink pauses. */
  def endRow(): Boolean = {
    if (count == 0) followsFiles = files.readsFiles
    if (count == 0 || followsFiles) follow(files.current)
    count += 1
    left -= 1
    left == 0
  }

  private def follow(file: AnyRef): Unit = {
    if (count == 0) firstFile = file
    else if (!file.eq(lastFile)) later += LaterFile(count, file)
    lastFile = file
  }

  /** Return the row that generated code returns to its caller when the sink pauses. */
  def pause(): InternalRow = InternalRow.empty

  /** Pause after this many more rows. */
  def pauseAfter(rows: Int): Unit = left = rows

  /** Return how many rows the batch has so far. */
  def rows: Int = count

  /** Return the file block of the batch's first row. */
  def file: AnyRef = firstFile

  /** Return the file blocks that begin after the batch's first row, in order. */
  def laterFiles: Seq[LaterFile] = later.result()

  /** Start the next batch. */
  def advance(): Unit = {
    count = 0
    later = Seq.newBuilder[LaterFile]
  }
}

/** Input that generated code fills directly, without building rows.
  *
  * @param spec
  *   columns that the code has to write
  * @param builder
  *   function that creates a partition's builder
  */
final class FusedInput(val spec: RequestSpec, builder: Int => RequestBuilder)
    extends Serializable {

  def requests(
      code: FusedCode,
      rows: Iterator[InternalRow],
      files: InputFiles,
      partition: Int
  ): RequestSource = new FusedFeed(partition, code, rows, builder(partition), files)
}

/** Feed from a stage of generated code, which writes its rows into the builder's columns. */
final class FusedFeed(
    partition: Int,
    code: FusedCode,
    input: Iterator[InternalRow],
    builder: RequestBuilder,
    files: InputFiles
) extends RequestSource {
  private[this] val sink = new RowSink(builder.columns, files)
  private[this] var pauses: Iterator[InternalRow] = _
  private[this] var hasEnded = false

  override def next(): Option[Request] = {
    files.ofChild(fill())
    if (builder.rows > 0) Some(finish()) else None
  }

  private def fill(): Unit = {
    if (pauses == null) pauses = code.start(partition, input, sink)
    while (!hasEnded && !builder.isFull) {
      sink.pauseAfter(builder.room)
      hasEnded = !pauses.hasNext
      if (!hasEnded) pauses.next(): Unit
      builder.hasRows(sink.rows)
    }
  }

  private def finish(): Request = {
    val request = builder.finish(sink.file)
    val laterFiles = sink.laterFiles
    sink.advance()
    if (laterFiles.isEmpty) request
    else request.copy(kept = request.kept.copy(laterFiles = laterFiles))
  }

  override def setMostRows(rows: Int): Unit = builder.setMostRows(rows)

  override def close(): Unit = builder.close()
}
