// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.columns

import org.apache.arrow.memory.ArrowBuf
import org.apache.spark.sql.updraft.SparkInternals
import org.apache.spark.sql.vectorized.ColumnVector
import org.apache.spark.unsafe.Platform

/** Validity buffer of a column being built. The first null allocates the buffer, so most columns
  * have no buffer.
  */
private[columns] final class ValidityBits extends AutoCloseable {
  private[this] var bits: ArrowBuf = _
  private[this] var capacityBytes = 0
  private[this] var nulls = 0

  def nullCount: Int = nulls

  def setNull(row: Int): Unit = {
    val byteIndex = row >> 3
    if (byteIndex >= capacityBytes) grow(byteIndex + 1)
    val address = bits.memoryAddress() + byteIndex
    Platform.putByte(null, address, (Platform.getByte(null, address) & ~(1 << (row & 7))).toByte)
    nulls += 1
  }

  def setNulls(source: ColumnVector, from: Int, count: Int, firstRow: Int): Unit = {
    var i = 0
    while (i < count) {
      if (source.isNullAt(from + i)) setNull(firstRow + i)
      i += 1
    }
  }

  def setNulls(copies: RowCopies, ordinal: Int, firstRow: Int): Unit = {
    var i = 0
    while (i < copies.count) {
      if (copies.isNullAt(i, ordinal)) setNull(firstRow + i)
      i += 1
    }
  }

  /** Return the buffer for a column of `rows` values; empty if no value is null. This object is
    * empty afterwards.
    */
  def finish(rows: Int): ArrowBuf =
    if (nulls == 0) {
      SparkInternals.allocator.getEmpty
    } else {
      val needed = (rows + 7) >> 3
      if (needed > capacityBytes) grow(needed)
      val finished = bits
      finished.writerIndex(needed.toLong)
      bits = null
      capacityBytes = 0
      nulls = 0
      finished
    }

  /** Grow the buffer. New bytes mean "valid", because only nulls are written. */
  private def grow(neededBytes: Int): Unit = {
    val wanted = math.max(math.max(neededBytes, capacityBytes * 2), 1024)
    val grown = SparkInternals.allocator.buffer(wanted.toLong)
    val grownBytes = grown.capacity().toInt
    Platform.setMemory(grown.memoryAddress(), 0xff.toByte, grownBytes.toLong)
    if (bits != null) {
      Platform.copyMemory(null, bits.memoryAddress(), null, grown.memoryAddress(), capacityBytes)
      bits.close()
    }
    bits = grown
    capacityBytes = grownBytes
  }

  override def close(): Unit = {
    if (bits != null) bits.close()
    bits = null
    capacityBytes = 0
    nulls = 0
  }
}
