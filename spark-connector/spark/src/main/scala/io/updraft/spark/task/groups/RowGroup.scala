// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.groups

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.updraft.TaskPages
import org.apache.spark.unsafe.Platform

import io.updraft.spark.columns.RowCopies

/** Copies of the rows of one group, in segments of memory. A word before each row holds the row's
  * size and turn. The turns define the order of the rows of all groups.
  */
private final class RowGroup(val key: UnsafeRow, pages: TaskPages) {
  private[this] val segments = new ArrayBuffer[RowGroup.Segment](2)
  private[this] var last = RowGroup.NoSegment
  // Index of the segment with the first row; `rotate` may advance this index.
  private[this] var head = 0

  /** Make room for a row of this many bytes. Return whether that succeeded. */
  def makesRoomFor(size: Int): Boolean = {
    val bytes = RowGroup.WordBytes + size
    last.end + bytes <= last.limit || extend(bytes.toLong)
  }

  /** Add a segment. Return whether memory was available. The first segment is small and each may be
    * twice as large as the segment before, so a small group takes little memory.
    */
  private def extend(needed: Long): Boolean = {
    val doubled = RowGroup.FirstSegmentBytes << math.min(segments.length, 16)
    val bytes = math.max(needed, math.min(doubled, RowGroup.LargestSegmentBytes))
    pages.reserve(bytes) && {
      last = new RowGroup.Segment(pages.base, pages.offset, pages.offset + bytes)
      segments += last
      true
    }
  }

  /** Copy a row for which there is room. */
  def add(row: UnsafeRow, turn: Int): Unit = {
    val size = row.getSizeInBytes
    Platform.putLong(last.base, last.end, turn.toLong << 32 | size)
    RowCopies.copyWords(
      row.getBaseObject,
      row.getBaseOffset,
      last.base,
      last.end + RowGroup.WordBytes,
      size
    )
    last.end += RowGroup.WordBytes + size
  }

  /** Return the turn of the first row. */
  def firstTurn: Int = segments(head).turnAt(segments(head).start)

  /** Move the first row behind the last row, with the given turn. Return whether there was room.
    * `row` is scratch space.
    */
  def rotate(row: UnsafeRow, turn: Int): Boolean = {
    val segment = segments(head)
    val next = segment.read(segment.start, row)
    makesRoomFor(row.getSizeInBytes) && {
      add(row, turn)
      segment.start = next
      if (next == segment.end) head += 1
      true
    }
  }

  /** Return the rows one by one, each in `row`. */
  def rows(row: UnsafeRow): Iterator[UnsafeRow] = new Iterator[UnsafeRow] {
    // Skip empty segments: the last segment may have been created for a row that then was not
    // added.
    private[this] val rest =
      segments.iterator.drop(head).filter(segment => segment.start < segment.end)
    private[this] var segment = RowGroup.NoSegment
    private[this] var position = segment.end

    override def hasNext: Boolean = position < segment.end || rest.hasNext

    override def next(): UnsafeRow = {
      if (position == segment.end) {
        segment = rest.next()
        position = segment.start
      }
      position = segment.read(position, row)
      row
    }
  }
}

private object RowGroup {

  /** Size of the word before each row. The word also keeps rows word-aligned. */
  private val WordBytes = 8

  private val FirstSegmentBytes = 512L
  private val LargestSegmentBytes = 32L << 10
  private val NoSegment = new Segment(null, 0, 0)

  /** Segment with rows from `start` until `end`. */
  final class Segment(val base: AnyRef, var start: Long, val limit: Long) {
    var end: Long = start

    def turnAt(position: Long): Int = (Platform.getLong(base, position) >>> 32).toInt

    /** Point `row` to the row at this position. Return the position of the next row. */
    def read(position: Long, row: UnsafeRow): Long = {
      val size = Platform.getLong(base, position).toInt
      row.pointTo(base, position + WordBytes, size)
      position + WordBytes + size
    }
  }
}
