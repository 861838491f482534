// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task

import org.scalatest.funsuite.AnyFunSuite

class BatchPaceSuite extends AnyFunSuite {
  private val milli = 1000000L

  private def after(replies: (Int, Long)*): BatchPace = {
    val pace = new BatchPace
    replies.foreach { case (rows, milliseconds) => pace.answered(rows, milliseconds * milli) }
    pace
  }

  test("a task that never waits has no limit") {
    assert(after(10 -> 0, 10 -> 0).mostRows(1) === Int.MaxValue)
  }

  test("the wait for the first reply does not count") {
    assert(after(10 -> 60000, 10 -> 0).mostRows(1) === Int.MaxValue)
  }

  test("requests take 50 ms") {
    assert(after(1 -> 0, 1000 -> 100, 1000 -> 100).mostRows(1) === 500)
  }

  test("several workers compute at the same time, so each has fewer rows") {
    assert(after(1 -> 0, 1000 -> 100, 1000 -> 100).mostRows(4) === 125)
  }

  test("bursts of replies do not change the limit much") {
    val bursts = Seq.fill(20)(Seq(1000 -> 400L, 1000 -> 0L, 1000 -> 0L, 1000 -> 0L)).flatten
    val limits = bursts.indices.drop(8).map(n => after((1 -> 0L) +: bursts.take(n): _*).mostRows(1))
    assert(limits.forall(limit => limit > 300 && limit < 700), limits)
  }

  test("a request has at least one row") {
    assert(after(1 -> 0, 1 -> 60000).mostRows(8) === 1)
  }
}
