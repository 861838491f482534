// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.once

import java.util.UUID

import org.apache.arrow.vector.BigIntVector
import org.apache.spark.sql.types.LongType
import org.apache.spark.sql.updraft.SparkInternals
import org.apache.spark.sql.vectorized.ColumnVector
import org.scalatest.funsuite.AnyFunSuite

import io.updraft.spark.columns.{RepeatedColumn, ResultColumns}

class CallOnceSuite extends AnyFunSuite {

  private def policy(isAuto: Boolean = true): CallOnce =
    CallOnce(isAuto, UUID.randomUUID().toString, UUID.randomUUID().toString)

  /** Return how many windows a task passes before it stops its search; 20 if it never stops. */
  private def windows(once: CallOnce)(callsOf: Long => Long): Int = {
    val watch = new RepeatWatch(once)
    val ends = Iterator.iterate((8192L, 16384L)) { case (end, rows) => (end + rows, rows * 2) }
    ends.map(_._1).take(20).indexWhere(rows => !watch.continues(rows, callsOf(rows))) match {
      case -1 => 20
      case stopped => stopped
    }
  }

  test("a task stops after the first window if no value repeats") {
    val once = policy()
    assert(windows(once)(identity) == 0)
    assert(!once.isWorthwhile, "the operator's next tasks need not look")
  }

  test("a task decides nothing before its first window has all rows") {
    assert(new RepeatWatch(policy()).continues(8191, 8191))
  }

  test("a task goes on while values repeat") {
    val once = policy()
    assert(windows(once)(_ / 2) == 20)
    assert(once.isWorthwhile)
  }

  test("a task goes on if repeats grow more frequent, as in a table that fills") {
    val values = 300000.0
    assert(windows(policy())(rows => (values * (1 - math.exp(-rows / values))).toLong) == 20)
  }

  test("a task stops if repeats stay rare") {
    assert(windows(policy())(rows => (rows * 0.97).toLong) == 2)
  }

  test("without auto a task never stops") {
    val once = policy(isAuto = false)
    assert(windows(once)(identity) == 20)
    once.foundDistinct()
    assert(once.isWorthwhile)
  }

  test("functions that have used accumulators are called for every row, in all operators") {
    val once = policy(isAuto = false)
    once.foundAccumulator()
    assert(!once.copy(operator = "another").isWorthwhile)
    assert(once.copy(functions = "others").isWorthwhile)
  }

  /** Column that records whether it was closed. */
  private final class Column(values: Long*) {
    private val vector = new BigIntVector("x", SparkInternals.allocator)
    vector.allocateNew(values.length)
    values.zipWithIndex.foreach { case (value, row) => vector.set(row, value) }
    vector.setValueCount(values.length)
    val columns: Array[ColumnVector] = Array(ResultColumns.wrap(vector, LongType))

    def bytes: Long = vector.getDataBuffer.capacity + vector.getValidityBuffer.capacity

    def isOpen: Boolean = vector.getDataBuffer.capacity() > 0
  }

  test("results stay until the table and all requests have released them") {
    val (first, second) = (new Column(10, 11), new Column(20))
    val known = new KnownResults
    val allocated = first.bytes + second.bytes
    val ahead = new Repeats(known, Array(0, 1, 0), calls = 2)
    known.announce()
    val behind =
      new Repeats(known, Array(1, RepeatedColumn.place(1, 0), 0), calls = 1)
    known.announce()
    val repeated = new Repeats(known, Array(RepeatedColumn.place(1, 0)), calls = 0)
    known.release()

    val shown = ahead.results(first.columns).head
    assert((0 until 3).map(shown.getLong) == Seq(10, 11, 10))
    shown.close()
    shown.close()
    val later = behind.results(second.columns).head
    assert((0 until 3).map(later.getLong) == Seq(11, 20, 10))
    assert(known.bytes == allocated)
    later.close()
    assert(first.isOpen && second.isOpen)
    val last = repeated.results(fail("a request without tuples has no results")).head
    assert(last.getLong(0) == 20)
    last.close()
    assert(!first.isOpen && !second.isOpen)
  }
}
