// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.columns

import org.apache.arrow.memory.ArrowBuf
import org.apache.arrow.vector.ipc.message.ArrowFieldNode
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters
import org.apache.spark.sql.vectorized.ColumnVector

/** Copies values of one column into Arrow buffers, until [[finish]] hands them over as a column and
  * starts afresh.
  *
  * One kind of builder per physical layout: [[FixedWidthBuilder]], [[BooleanBuilder]],
  * [[VariableWidthBuilder]], and [[NestedBuilder]] for the rest. [[ColumnBuilders]] chooses.
  */
abstract class ColumnBuilder extends AutoCloseable {

  /** Copies `count` rows of a vector, from its row `from` on. */
  def append(source: ColumnVector, from: Int, count: Int): Unit

  /** Copies one value of a row. */
  def append(row: SpecializedGetters, ordinal: Int): Unit

  /** Copies one column of all rows. */
  def append(copies: RowCopies, ordinal: Int): Unit = {
    var i = 0
    while (i < copies.count) {
      append(copies.row(i), ordinal)
      i += 1
    }
  }

  /** Bytes of the values so far; for nested columns an estimate that is brought up to date by
    * [[measure]].
    */
  def byteCount: Long

  /** Brings [[byteCount]] up to date where that costs more than a field access. */
  def measure(): Unit = ()

  /** The column as it stands; the builder is empty afterwards. */
  def finish(): FilledColumn

  /** Releases what was not finished. */
  override def close(): Unit
}

/** Nodes and buffers of one finished column in IPC order; holds one reference to each buffer. */
final class FilledColumn(val nodes: Array[ArrowFieldNode], val buffers: Array[ArrowBuf])
    extends AutoCloseable {

  override def close(): Unit = buffers.foreach(_.close())
}
