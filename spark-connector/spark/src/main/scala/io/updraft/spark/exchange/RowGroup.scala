// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.exchange

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.updraft.TaskPages
import org.apache.spark.unsafe.Platform

import io.updraft.spark.columns.RowBlock

/** Copies of the rows of one group, in chunks of memory: each row behind a word with its size and
  * its turn among the rows of all groups.
  */
private final class RowGroup(val key: UnsafeRow, pages: TaskPages) {
  private[this] val chunks = new ArrayBuffer[RowGroup.Chunk](2)
  private[this] var last = RowGroup.NoChunk
  // The chunk of the first row, which may move on.
  private[this] var head = 0

  /** Whether there is room for a row of so many bytes. */
  def makesRoomFor(size: Int): Boolean = {
    val bytes = RowGroup.WordBytes + size
    last.end + bytes <= last.limit || extend(bytes.toLong)
  }

  /** Each chunk may be twice as large as the one before: a small group takes little. */
  private def extend(needed: Long): Boolean = {
    val doubled = RowGroup.FirstChunkBytes << math.min(chunks.length, 16)
    val bytes = math.max(needed, math.min(doubled, RowGroup.LargestChunkBytes))
    pages.reserve(bytes) && {
      last = new RowGroup.Chunk(pages.base, pages.offset, pages.offset + bytes)
      chunks += last
      true
    }
  }

  /** Copies a row for which there is room. */
  def add(row: UnsafeRow, turn: Int): Unit = {
    val size = row.getSizeInBytes
    Platform.putLong(last.base, last.end, turn.toLong << 32 | size)
    RowBlock.copyWords(
      row.getBaseObject,
      row.getBaseOffset,
      last.base,
      last.end + RowGroup.WordBytes,
      size
    )
    last.end += RowGroup.WordBytes + size
  }

  /** The turn of the first row. */
  def firstTurn: Int = chunks(head).turnAt(chunks(head).start)

  /** Moves the first row behind the last, with a turn of its own; whether there was room. `row` is
    * for use.
    */
  def rotate(row: UnsafeRow, turn: Int): Boolean = {
    val chunk = chunks(head)
    val next = chunk.read(chunk.start, row)
    makesRoomFor(row.getSizeInBytes) && {
      add(row, turn)
      chunk.start = next
      if (next == chunk.end) head += 1
      true
    }
  }

  /** Shows the rows one after the other in `row`. */
  def rows(row: UnsafeRow): Iterator[UnsafeRow] = new Iterator[UnsafeRow] {
    // The last may have been made for a row that then went elsewhere.
    private[this] val rest = chunks.iterator.drop(head).filter(chunk => chunk.start < chunk.end)
    private[this] var chunk = RowGroup.NoChunk
    private[this] var position = chunk.end

    override def hasNext: Boolean = position < chunk.end || rest.hasNext

    override def next(): UnsafeRow = {
      if (position == chunk.end) {
        chunk = rest.next()
        position = chunk.start
      }
      position = chunk.read(position, row)
      row
    }
  }
}

private object RowGroup {

  /** What lies before a row: as much as lets it begin at a word. */
  private val WordBytes = 8

  private val FirstChunkBytes = 512L
  private val LargestChunkBytes = 32L << 10
  private val NoChunk = new Chunk(null, 0, 0)

  /** Rows from `start` until `end`. */
  final class Chunk(val base: AnyRef, var start: Long, val limit: Long) {
    var end: Long = start

    def turnAt(position: Long): Int = (Platform.getLong(base, position) >>> 32).toInt

    /** Shows a row; where the next one is. */
    def read(position: Long, row: UnsafeRow): Long = {
      val size = Platform.getLong(base, position).toInt
      row.pointTo(base, position + WordBytes, size)
      position + WordBytes + size
    }
  }
}
