// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.groups

import java.util.{HashMap, PriorityQueue}

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.codegen.GenerateOrdering
import org.apache.spark.sql.updraft.TaskPages

import io.updraft.spark.columns.RowCopies

/** Copies of rows, grouped by their keys. Each group has memory of its own, so that the rows of a
  * group are read sequentially. [[mergedWith]] returns the rows in the order that Spark's sort
  * would produce.
  *
  * @param keys
  *   keys among `rows`. Two keys are equal if and only if their bytes are equal
  * @param nullsRotate
  *   true if Spark would use its radix sort (UnsafeInMemorySorter). To make room for a row with a
  *   null key, this sort moves the first row with a non-null key behind the last row
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
  // Groups with non-null keys, ordered by the turn of their first rows. This field is null until
  // the first row with a null key arrives.
  private[this] var rotation: PriorityQueue[RowGroup] = _

  /** Copy a row. Return whether there was room. */
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

  /** Return a new group without rows; null if there is no room. */
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

  /** Return these rows, with groups in key order, merged with the later rows, which are `sorted`.
    * The memory is freed after the last row. A row is valid until the next row is requested.
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

  /** Maximum number of groups. If there are more groups, each group is small, and sorting the rows
    * is just as fast.
    */
  val MostGroups = 8192
}
