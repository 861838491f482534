// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.arrow.vector.ValueVector
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters
import org.apache.spark.sql.execution.arrow.ArrowWriter

/** Spark's Arrow writer of one column, which is visible only inside Spark's packages. */
final class FieldWriter(vector: ValueVector) {
  private[this] val writer = ArrowWriter.createFieldWriter(vector)
  private[this] var count = 0

  def write(row: SpecializedGetters, ordinal: Int): Unit = {
    writer.write(row, ordinal)
    count += 1
  }

  /** Return the bytes of the values so far. */
  def sizeInBytes: Long = {
    // Arrow counts bytes only up to the value count.
    vector.setValueCount(count)
    vector.getBufferSizeFor(count).toLong
  }

  def finish(): Unit = writer.finish()
}
