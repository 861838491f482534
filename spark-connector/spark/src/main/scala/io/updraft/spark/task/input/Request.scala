// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.input

import org.apache.arrow.vector.ipc.message.ArrowRecordBatch
import org.apache.spark.sql.vectorized.ColumnVector

import io.updraft.client.BatchGroups
import io.updraft.spark.task.once.Repeats

/** Batch to send, the columns that stay in the executor to be joined to the reply, and the groups
  * that end in the batch.
  */
final case class Request(
    batch: ArrowRecordBatch,
    kept: RetainedRows,
    groups: BatchGroups = BatchGroups.NONE
)

/** Pass-through columns of one request.
  *
  * @param rows
  *   number of the child's rows in the request; for aggregates, number of groups that end in the
  *   request
  * @param values
  *   expected number of rows in the reply: the same as [[calls]], or fewer if a value holds several
  *   pickled rows
  * @param columns
  *   the child's columns, in the child's order; empty if the output has only results
  * @param inputFile
  *   file block of the first row, as InputFiles returns it
  * @param laterFiles
  *   file blocks that begin after the first row, in order
  * @param repeats
  *   places of the rows' results if the functions are called once for each value
  */
final case class RetainedRows(
    rows: Int,
    values: Int,
    columns: Array[ColumnVector],
    inputFile: AnyRef,
    laterFiles: Seq[LaterFile] = Nil,
    repeats: Option[Repeats] = None
) extends AutoCloseable {

  /** Return the number of rows for which the functions are called. */
  def calls: Int = repeats.fold(rows)(_.calls)

  /** Return the file block of a row. */
  def fileOf(row: Int): AnyRef =
    laterFiles.reverseIterator.find(_.firstRow <= row).fold(inputFile)(_.block)

  /** Return the file block of the last row. */
  def lastFile: AnyRef = laterFiles.lastOption.fold(inputFile)(_.block)

  override def close(): Unit = {
    columns.foreach(_.close())
    repeats.foreach(_.close())
  }
}

/** File block that begins within a request. */
final case class LaterFile(firstRow: Int, block: AnyRef)

/** Source of requests from a task's input, used on the task's thread. */
trait RequestSource extends AutoCloseable {

  /** Return the next request; None at the end of the input. */
  def next(): Option[Request]

  /** Set a limit on the rows of the next requests; see BatchPace. */
  def setMostRows(rows: Int): Unit = ()

  /** Release requests that were not taken. */
  override def close(): Unit
}
