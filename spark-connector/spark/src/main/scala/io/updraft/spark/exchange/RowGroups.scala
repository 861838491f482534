// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.exchange

import java.util.{HashMap, PriorityQueue}

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.codegen.GenerateOrdering
import org.apache.spark.sql.updraft.TaskPages

import io.updraft.spark.columns.RowBlock

/** Copies of rows, brought together by their keys: a group has memory of its own, so that its rows
  * are read from one end to the other. They are in the order in which Spark's sort would have them.
  *
  * @param keys
  *   of `rows`; equal where their bytes are
  * @param nullsRotate
  *   whether the sort would be the one that makes room for a row without a key by moving the first
  *   row with a key behind the last (UnsafeInMemorySorter, for a radix sort)
  */
final class RowGroups(
    keys: Seq[Expression],
    rows: Seq[Attribute],
    nullsRotate: Boolean,
    pages: TaskPages
) {
  private[this] val keyOf = UnsafeProjection.create(keys, rows)
  private[this] val groups = new HashMap[UnsafeRow, RowGroup]
  private[this] val shown = new UnsafeRow(rows.length)
  private[this] var turn = 0
  // Groups with a key by the turn of their first rows, from the first row without a key on.
  private[this] var rotation: PriorityQueue[RowGroup] = _

  /** Copies a row; whether there was room. */
  def add(row: UnsafeRow): Boolean = {
    val key = keyOf(row)
    val rotates = nullsRotate && key.isNullAt(0)
    val known = groups.get(key)
    val group = if (known == null) begin(key) else known
    group != null && group.makesRoomFor(row.getSizeInBytes) && (!rotates || rotate()) && {
      turn += 1
      // Rows without a key are the first ones of such a sort.
      group.add(row, if (rotates) 0 else turn)
      if (known == null && !rotates && rotation != null) rotation.add(group)
      true
    }
  }

  private def begin(key: UnsafeRow): RowGroup = {
    val bytes = key.getSizeInBytes
    if (groups.size == RowGroups.MostGroups || !pages.reserve(bytes.toLong)) null
    else {
      val kept = new UnsafeRow(keys.length)
      kept.pointTo(pages.base, pages.offset, bytes)
      RowBlock.copyWords(key.getBaseObject, key.getBaseOffset, pages.base, pages.offset, bytes)
      val group = new RowGroup(pages)
      groups.put(kept, group)
      group
    }
  }

  private def rotate(): Boolean = {
    if (rotation == null) {
      rotation = new PriorityQueue[RowGroup](Ordering.by[RowGroup, Int](_.firstTurn))
      groups.values.forEach(group => if (!group.isEmpty) rotation.add(group): Unit)
    }
    val first = rotation.poll()
    first == null || {
      turn += 1
      val moved = first.rotate(shown, turn)
      rotation.add(first)
      moved
    }
  }

  /** The rows, groups in the order of their keys; the memory is free again behind the last. A row
    * is valid until the next one is asked for.
    */
  def drain(): Iterator[UnsafeRow] = {
    val sorted = groups.asScala.toArray.sortBy(_._1: InternalRow)(keyOrdering)
    sorted.iterator.flatMap(_._2.rows(shown)) ++ end()
  }

  private def keyOrdering: Ordering[InternalRow] =
    GenerateOrdering.generate(keys.zipWithIndex.map { case (key, i) =>
      SortOrder(BoundReference(i, key.dataType, key.nullable), Ascending)
    })

  /** The rows by their turns, to be sorted; otherwise like [[drain]]. */
  def replay(): Iterator[UnsafeRow] = {
    val readers = new PriorityQueue[RowGroup.Rows](Ordering.by[RowGroup.Rows, Int](_.turn))
    groups.values.forEach(group => if (!group.isEmpty) readers.add(group.rows(shown)): Unit)
    Iterator.continually(readers.poll()).takeWhile(_ != null).map { reader =>
      val row = reader.next()
      if (reader.hasNext) readers.add(reader)
      row
    } ++ end()
  }

  private def end(): Iterator[UnsafeRow] = {
    groups.clear()
    pages.free()
    Iterator.empty
  }
}

object RowGroups {

  /** A task with more of them has small groups, which a sort brings together as fast. */
  val MostGroups = 8192
}
