// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.columns

import org.apache.arrow.memory.ArrowBuf
import org.apache.arrow.vector.ipc.message.ArrowFieldNode
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters
import org.apache.spark.sql.vectorized.ColumnVector

/** Builder that copies values of one column into Arrow buffers. [[finish]] returns the buffers as a
  * column and starts the next column.
  *
  * Each physical layout has its own builder: [[FixedWidthBuilder]], [[BooleanBuilder]],
  * [[VariableWidthBuilder]], and [[NestedBuilder]] for all other layouts. [[ColumnBuilders]]
  * chooses the builder for a type.
  */
abstract class ColumnBuilder extends AutoCloseable {

  /** Copy `count` rows of a vector, starting at row `from`. */
  def append(source: ColumnVector, from: Int, count: Int): Unit

  /** Copy one value of a row. */
  def append(row: SpecializedGetters, ordinal: Int): Unit

  /** Copy one column of all rows in the block. */
  def append(copies: RowCopies, ordinal: Int): Unit = {
    var i = 0
    while (i < copies.count) {
      append(copies.row(i), ordinal)
      i += 1
    }
  }

  /** Append a null. Subclasses also have a method `put`, with a parameter of their own type. */
  def putNull(): Unit

  /** Return the bytes of the values so far. For nested columns this is an estimate that [[measure]]
    * updates.
    */
  def byteCount: Long

  /** Update [[byteCount]]. Builders whose count is always current do nothing. */
  def measure(): Unit = ()

  /** Return the column built so far; the builder is empty afterwards. */
  def finish(): FilledColumn

  /** Release the unfinished column. */
  override def close(): Unit
}

/** Nodes and buffers of one finished column in IPC order; holds one reference to each buffer. */
final class FilledColumn(val nodes: Array[ArrowFieldNode], val buffers: Array[ArrowBuf])
    extends AutoCloseable {

  override def close(): Unit = buffers.foreach(_.close())
}
