// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.groups

import java.util.{HashMap, PriorityQueue}

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.codegen.GenerateOrdering
import org.apache.spark.sql.updraft.TaskPages

import io.updraft.spark.columns.RowCopies

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
  // From the first row without a key on: the other groups by the turn of their first rows.
  private[this] var rotation: PriorityQueue[RowGroup] = _

  /** Copies a row; whether there was room. */
  def add(row: UnsafeRow): Boolean = {
    val key = keyOf(row)
    val rotates = nullsRotate && key.isNullAt(0)
    val known = groups.get(key)
    val group = if (known == null) newGroup(key) else known
    group != null && group.makesRoomFor(row.getSizeInBytes) && (!rotates || rotate()) && {
      turn += 1
      group.add(row, turn)
      if (known == null) enter(group, rotates)
      true
    }
  }

  /** A group without rows; null where there is no room. */
  private def newGroup(key: UnsafeRow): RowGroup = {
    val bytes = key.getSizeInBytes
    if (groups.size == RowGroups.MostGroups || !pages.reserve(bytes.toLong)) null
    else {
      val kept = new UnsafeRow(keys.length)
      kept.pointTo(pages.base, pages.offset, bytes)
      RowCopies.copyWords(key.getBaseObject, key.getBaseOffset, pages.base, pages.offset, bytes)
      new RowGroup(kept, pages)
    }
  }

  private def enter(group: RowGroup, hasNoKey: Boolean): Unit = {
    groups.put(group.key, group)
    if (rotation != null && !hasNoKey) rotation.add(group): Unit
  }

  private def rotate(): Boolean = {
    if (rotation == null) {
      rotation = new PriorityQueue[RowGroup](Ordering.by[RowGroup, Int](_.firstTurn))
      rotation.addAll(groups.values): Unit
    }
    val first = rotation.poll()
    first == null || {
      turn += 1
      val moved = first.rotate(shown, turn)
      rotation.add(first)
      moved
    }
  }

  /** These rows and others, which came later and are sorted: groups in the order of their keys. The
    * memory is free again behind the last row. A row is valid until the next one is asked for.
    */
  def mergedWith(sorted: Iterator[InternalRow]): Iterator[InternalRow] =
    new Iterator[InternalRow] {
      private[this] val others = sorted.buffered
      private[this] val mine =
        groups.values.asScala.toArray.sortBy(_.key: InternalRow)(keyOrdering).iterator.buffered
      private[this] var group: Iterator[UnsafeRow] = Iterator.empty

      override def hasNext: Boolean =
        group.hasNext || mine.hasNext || others.hasNext || {
          free()
          false
        }

      override def next(): InternalRow = {
        if (!group.hasNext && mine.hasNext && isNext(mine.head.key))
          group = mine.next().rows(shown)
        if (group.hasNext) group.next() else others.next()
      }

      private def isNext(key: UnsafeRow): Boolean =
        !others.hasNext || keyOrdering.compare(key, keyOf(others.head)) <= 0
    }

  private lazy val keyOrdering: Ordering[InternalRow] =
    GenerateOrdering.generate(keys.zipWithIndex.map { case (key, i) =>
      SortOrder(BoundReference(i, key.dataType, key.nullable), Ascending)
    })

  private def free(): Unit = {
    groups.clear()
    pages.free()
  }
}

object RowGroups {

  /** A task with more of them has small groups, which a sort brings together as fast. */
  val MostGroups = 8192
}
