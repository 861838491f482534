// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.groups

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.AttributeReference
import org.apache.spark.sql.types.LongType
import org.apache.spark.sql.updraft.{InputFiles, SparkInternals}
import org.scalatest.funsuite.AnyFunSuite

import io.updraft.spark.columns.{BatchLimits, ColumnSet}
import io.updraft.spark.task.input.{Request, RequestSpec}

class CogroupedFeedSuite extends AnyFunSuite {
  import CogroupedFeedSuite.Sent

  private val allocator = SparkInternals.allocator
  private val key = AttributeReference("k", LongType)()
  private val value = AttributeReference("v", LongType)()
  private val roomy = BatchLimits(10000, 64 << 20, 1 << 20, 4 << 20, 16 << 20)
  private val sixteenRows = BatchLimits(16, 64 << 20, 16 * 16, 1 << 20, 16 << 20)

  private def input(limits: BatchLimits): GroupedInput = {
    val columns = Seq(key, value)
    val spec =
      RequestSpec(columns, Seq(0, 1), Seq.empty, columns, limits, "UTC", largeVarTypes = false)
    GroupedInput(spec, Seq(key), GroupedRows.FromChild, RowShape.Columns)
  }

  private def feed(
      left: Seq[(Long, Long)],
      right: Seq[(Long, Long)],
      limits: BatchLimits
  ): CogroupedFeed = {
    def side(rows: Seq[(Long, Long)]) =
      new GroupedSide(rows.iterator.map { case (k, v) => InternalRow(k, v) }, input(limits), 0)
    new CogroupedFeed(side(left), side(right), input(limits).keyOrdering, new InputFiles)
  }

  private def requests(
      left: Seq[(Long, Long)],
      right: Seq[(Long, Long)],
      limits: BatchLimits = roomy
  ): Seq[Sent] = {
    val source = feed(left, right, limits)
    try Iterator.continually(source.next()).takeWhile(_.isDefined).map(r => read(r.get)).toList
    finally source.close()
  }

  private def read(request: Request): Sent = {
    val columns =
      try ColumnSet.loadUntyped(request.batch, input(roomy).schema)
      finally request.batch.close()
    try {
      val values = (0 until request.batch.getLength).map(columns(1).getLong)
      val bounds = 0 +: request.groups.ends.toSeq
      val groups = bounds.zip(bounds.tail).map { case (from, until) => values.slice(from, until) }
      Sent(request.groups.input, groups, values.drop(bounds.last))
    } finally columns.foreach(_.close())
  }

  private def group(key: Long, values: Range): Seq[(Long, Long)] =
    values.map(value => (key, value.toLong))

  test("groups of both sides share a run, and a group that a side lacks is empty there") {
    val left = group(1, 10 to 11) ++ group(2, 12 to 12) ++ group(4, 13 to 13)
    val right = group(2, 20 to 20) ++ group(3, 21 to 22)
    assert(
      requests(left, right) == Seq(
        Sent(0, Seq(Seq(10, 11), Seq(12), Seq(), Seq(13))),
        Sent(1, Seq(Seq(), Seq(20), Seq(21, 22), Seq()))
      )
    )
  }

  test("two empty sides make no request") {
    assert(requests(Seq.empty, Seq.empty).isEmpty)
  }

  test("a side without any row still ends its groups") {
    assert(
      requests(group(1, 0 to 0), Seq.empty) == Seq(Sent(0, Seq(Seq(0))), Sent(1, Seq(Seq())))
    )
  }

  test("a large group goes on in the next requests, and its run ends with it") {
    val left = group(1, 0 until 40) ++ group(2, 40 to 40)
    val right = group(1, 100 until 140) ++ group(2, 140 to 140)
    val sent = requests(left, right, sixteenRows)
    assert(sent.map(_.input) == Seq(0, 0, 0, 1, 1, 1, 0, 1))
    assert(sent.map(_.groups.length) == Seq(0, 0, 1, 0, 0, 1, 1, 1))
    def whole(input: Int) =
      sent.filter(_.input == input).flatMap(request => request.groups.flatten ++ request.open)
    assert(whole(0) == (0L to 40L))
    assert(whole(1) == (100L to 140L))
  }

  test("a task that ends early keeps nothing") {
    val before = allocator.getAllocatedMemory
    val source = feed(group(1, 0 until 40), group(1, 0 until 40), sixteenRows)
    source.next().foreach(_.batch.close())
    source.close()
    assert(allocator.getAllocatedMemory == before)
  }
}

private object CogroupedFeedSuite {

  /** Request as a pool sees it: the values of the groups that end in the request, and the values
    * after the last end.
    */
  final case class Sent(input: Int, groups: Seq[Seq[Long]], open: Seq[Long] = Seq.empty)
}
