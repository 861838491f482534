// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.input

import org.apache.arrow.vector.ipc.message.ArrowRecordBatch
import org.apache.spark.sql.vectorized.ColumnVector

import io.updraft.client.BatchGroups

/** A batch to send, what stays here to be joined to its reply, and the groups that end in it. */
final case class Request(
    batch: ArrowRecordBatch,
    kept: Kept,
    groups: BatchGroups = BatchGroups.NONE
)

/** Pass-through columns of one request.
  *
  * @param rows
  *   rows of the child that the request was made of
  * @param values
  *   rows that the reply must have: the same, or fewer where a value holds several pickled rows
  * @param columns
  *   the child's columns, in its order; empty where the results are all of the output
  * @param inputFile
  *   the block of a file that the first row comes from, as InputFiles gives it
  * @param laterFiles
  *   the blocks of further rows, in their order
  */
final case class Kept(
    rows: Int,
    values: Int,
    columns: Array[ColumnVector],
    inputFile: AnyRef,
    laterFiles: Seq[LaterFile] = Nil
) extends AutoCloseable {

  /** The block of a file that a row comes from. */
  def fileOf(row: Int): AnyRef =
    laterFiles.findLast(_.firstRow <= row).fold(inputFile)(_.block)

  override def close(): Unit = columns.foreach(_.close())
}

/** A block of a file that begins within a request. */
final case class LaterFile(firstRow: Int, block: AnyRef)

/** Makes requests of a task's input, on the task thread. */
trait RequestSource extends AutoCloseable {

  /** The next request; None at the end of the input. */
  def next(): Option[Request]

  /** Releases what was not handed out. */
  override def close(): Unit
}
