// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.columns

import java.util.Arrays

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.unsafe.Platform

/** Block of row copies that is small enough for the processor's cache. Builders read the block
  * column by column, because a loop over the values of one column costs a fraction of one call for
  * each value.
  *
  * @param columns
  *   number of columns in a row
  */
final class RowCopies(columns: Int) {
  private[this] val bitSetBytes = UnsafeRow.calculateBitSetWidthInBytes(columns)
  private[this] val nullsOfAll = new Array[Long](bitSetBytes / 8)
  // Values are copied word by word, so the last read may go up to seven bytes beyond the end.
  private[this] val bytes = new Array[Byte](RowCopies.MostBytes + 8)
  private[this] val starts = new Array[Long](RowCopies.MostRows)
  private[this] val view = new UnsafeRow(columns)
  private[this] var end = RowCopies.Begin
  private[this] var rows = 0

  def count: Int = rows

  /** Return whether there is room for a row. */
  def hasRoomFor(row: UnsafeRow): Boolean =
    rows < RowCopies.MostRows && end + row.getSizeInBytes <= RowCopies.Begin + RowCopies.MostBytes

  /** Copy a row for which there is room. */
  def add(row: UnsafeRow): Unit = {
    val size = row.getSizeInBytes
    RowCopies.copyWords(row.getBaseObject, row.getBaseOffset, bytes, end, size)
    var i = 0
    while (i < nullsOfAll.length) {
      nullsOfAll(i) |= Platform.getLong(bytes, end + i * 8L)
      i += 1
    }
    starts(rows) = end
    end += size
    rows += 1
  }

  /** Return a row, always as the same UnsafeRow object. */
  def row(index: Int): UnsafeRow = {
    val next = if (index + 1 < rows) starts(index + 1) else end
    view.pointTo(bytes, starts(index), (next - starts(index)).toInt)
    view
  }

  /** Return whether a column has a null. */
  def hasNull(ordinal: Int): Boolean = (nullsOfAll(ordinal >> 6) >>> ordinal & 1) != 0

  def isNullAt(index: Int, ordinal: Int): Boolean =
    (Platform.getLong(bytes, starts(index) + (ordinal >> 6) * 8L) >>> ordinal & 1) != 0

  /** Return the word of a row for a column: the value itself, or the value's position in the row.
    */
  def word(index: Int, ordinal: Int): Long =
    Platform.getLong(bytes, starts(index) + bitSetBytes + ordinal * 8L)

  /** Copy a column's values to `address`. Values have one, two, four or eight bytes, and a null
    * becomes zero.
    */
  def copyColumn(ordinal: Int, width: Int, address: Long): Unit = {
    val field = bitSetBytes + ordinal * 8L
    var i = 0
    width match {
      case 1 => while (i < rows) {
          Platform.putByte(null, address + i, Platform.getByte(bytes, starts(i) + field))
          i += 1
        }
      case 2 => while (i < rows) {
          Platform.putShort(null, address + i * 2L, Platform.getShort(bytes, starts(i) + field))
          i += 1
        }
      case 4 => while (i < rows) {
          Platform.putInt(null, address + i * 4L, Platform.getInt(bytes, starts(i) + field))
          i += 1
        }
      case 8 => while (i < rows) {
          Platform.putLong(null, address + i * 8L, Platform.getLong(bytes, starts(i) + field))
          i += 1
        }
    }
  }

  /** Copy `length` bytes of a row, starting at `offset`, to `address`. Short values are copied in
    * whole words, which may overwrite up to seven bytes after the end.
    */
  def copyBytes(index: Int, offset: Int, length: Int, address: Long): Unit =
    RowCopies.copyWords(bytes, starts(index) + offset, null, address, length)

  /** Remove all rows. */
  def clear(): Unit = {
    Arrays.fill(nullsOfAll, 0L)
    end = RowCopies.Begin
    rows = 0
  }
}

private[spark] object RowCopies {
  private val Begin = Platform.BYTE_ARRAY_OFFSET.toLong

  /** Size of a core's L1 cache. */
  private val MostBytes = 32 << 10

  private val MostRows = 1024

  /** Largest length for which a loop is faster than calling the JVM's own copy. */
  private val LoopedBytes = 128

  /** Copy `length` bytes. Short values are copied in whole words, which may overwrite up to seven
    * bytes after the end.
    */
  def copyWords(
      source: AnyRef,
      sourceOffset: Long,
      target: AnyRef,
      targetOffset: Long,
      length: Int
  ): Unit =
    if (length > LoopedBytes) {
      Platform.copyMemory(source, sourceOffset, target, targetOffset, length.toLong)
    } else {
      var i = 0
      while (i < length) {
        Platform.putLong(target, targetOffset + i, Platform.getLong(source, sourceOffset + i))
        i += 8
      }
    }
}
