// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.columns

import org.scalatest.funsuite.AnyFunSuite

class GroupCutSuite extends AnyFunSuite {
  private val kilobyte = 1024L

  private final class Filling(rowBytes: Long, sliceRows: Int, aimBytes: Long) {
    var rows = 0
    private val limits =
      BatchLimits(sliceRows, 16 * aimBytes, aimBytes, 4 * aimBytes, 16 * aimBytes)
    val cut = new GroupCut(limits, () => BatchSize(rows * rowBytes, rows * rowBytes))

    /** Return the number of rows in each of the first requests of a group that never ends. */
    def requestsOfOneGroup(count: Int): Seq[Int] = Seq.fill(count) {
      rows = 1
      while (!cut.endsInsideGroup(rows)) rows += 1
      cut.advance()
      rows
    }

    /** Return the number of groups in each of the first requests if a group has this many rows. */
    def requestsOf(groupRows: Int, count: Int): Seq[Int] = Seq.fill(count) {
      var groups = 1
      rows = groupRows
      while (!cut.endsBehindGroup(rows, groups)) {
        groups += 1
        rows += groupRows
      }
      cut.advance()
      groups
    }
  }

  test("a large group is cut behind whole slices, and each request may hold twice as many") {
    val filling = new Filling(rowBytes = 64, sliceRows = 1000, aimBytes = 512 * kilobyte)
    assert(filling.requestsOfOneGroup(5) == Seq(1000, 2000, 4000, 8000, 8000))
  }

  test("a slice that is larger than a request may be is cut inside") {
    val filling =
      new Filling(rowBytes = kilobyte, sliceRows = Int.MaxValue, aimBytes = 64 * kilobyte)
    assert(filling.requestsOfOneGroup(1) == Seq(1024))
  }

  test("behind such a cut the next slice begins") {
    val filling =
      new Filling(rowBytes = kilobyte, sliceRows = 1500, aimBytes = 64 * kilobyte)
    assert(filling.requestsOfOneGroup(3) == Seq(1024, 1024, 1024))
  }

  test("small groups share a request until it has its bytes") {
    val filling = new Filling(rowBytes = 64, sliceRows = 1000, aimBytes = 512 * kilobyte)
    assert(filling.requestsOf(groupRows = 4, 4) == Seq(256, 512, 1024, 2048))
  }

  test("a request has no more groups than their ends have room in a message") {
    val filling = new Filling(rowBytes = 1, sliceRows = 1000, aimBytes = 512 * kilobyte)
    assert(filling.requestsOf(groupRows = 1, 2) == Seq(8192, 8192))
  }

  test("slices are counted from the first row of their group") {
    val filling = new Filling(rowBytes = 64, sliceRows = 1000, aimBytes = 64 * kilobyte)
    filling.rows = 10
    assert(!filling.cut.endsBehindGroup(10, 1))
    var groupRows = 1
    filling.rows += 1
    while (!filling.cut.endsInsideGroup(filling.rows)) {
      groupRows += 1
      filling.rows += 1
    }
    assert(groupRows == 1000)
  }
}
