// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.columns

import java.util.Arrays

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.unsafe.Platform

/** Copies of rows, few enough to stay in the processor's cache, which builders take column by
  * column: a loop over values of one type costs a fraction of a call for each value.
  *
  * @param columns
  *   how many columns a row has
  */
final class RowCopies(columns: Int) {
  private[this] val bitSetBytes = UnsafeRow.calculateBitSetWidthInBytes(columns)
  private[this] val nullsOfAll = new Array[Long](bitSetBytes / 8)
  // A row's bytes are copied by words: the last one may be read beyond a value's end.
  private[this] val bytes = new Array[Byte](RowCopies.MostBytes + 8)
  private[this] val starts = new Array[Long](RowCopies.MostRows)
  private[this] val view = new UnsafeRow(columns)
  private[this] var end = RowCopies.Begin
  private[this] var rows = 0

  def count: Int = rows

  /** Whether there is room for a row. */
  def hasRoomFor(row: UnsafeRow): Boolean =
    rows < RowCopies.MostRows && end + row.getSizeInBytes <= RowCopies.Begin + RowCopies.MostBytes

  /** Copies a row for which there is room. */
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

  /** A row; the same object each time. */
  def row(index: Int): UnsafeRow = {
    val next = if (index + 1 < rows) starts(index + 1) else end
    view.pointTo(bytes, starts(index), (next - starts(index)).toInt)
    view
  }

  /** Whether a column has a null somewhere. */
  def hasNull(ordinal: Int): Boolean = (nullsOfAll(ordinal >> 6) >>> ordinal & 1) != 0

  def isNullAt(index: Int, ordinal: Int): Boolean =
    (Platform.getLong(bytes, starts(index) + (ordinal >> 6) * 8L) >>> ordinal & 1) != 0

  /** What a row has for a column in a word: the value, or where in the row it is. */
  def word(index: Int, ordinal: Int): Long =
    Platform.getLong(bytes, starts(index) + bitSetBytes + ordinal * 8L)

  /** Copies a column's values, of one, two, four or eight bytes each, to `address`; a null is zero.
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

  /** Copies `length` bytes of a row from `offset` on to `address`, and up to seven more. */
  def copyBytes(index: Int, offset: Int, length: Int, address: Long): Unit =
    RowCopies.copyWords(bytes, starts(index) + offset, null, address, length)

  /** Forgets the rows. */
  def clear(): Unit = {
    Arrays.fill(nullsOfAll, 0L)
    end = RowCopies.Begin
    rows = 0
  }
}

private[spark] object RowCopies {
  private val Begin = Platform.BYTE_ARRAY_OFFSET.toLong

  /** As much as a core's first cache has. */
  private val MostBytes = 32 << 10

  private val MostRows = 1024

  /** Up to here a loop is faster than a call of the JVM's own copy. */
  private val LoopedBytes = 128

  /** Copies whole words until `length` is reached. */
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
