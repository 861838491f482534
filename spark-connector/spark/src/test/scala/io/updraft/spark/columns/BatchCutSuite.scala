// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.columns

import org.scalatest.funsuite.AnyFunSuite

class BatchCutSuite extends AnyFunSuite {
  private val limits = BatchLimits(
    sliceRows = 100,
    sliceBytes = 50000,
    requestBytes = 10000,
    heldBytes = 40000,
    ceilingBytes = 100000
  )

  /** Return the number of rows in each of the first batches if a row has this many bytes. */
  private def batches(
      count: Int,
      rowBytes: Long,
      heldRowBytes: Long,
      limits: BatchLimits = limits
  ): Seq[Int] = {
    val cut = new BatchCut(limits)
    Seq.fill(count)(batch(cut, rowBytes, heldRowBytes))
  }

  private def batch(cut: BatchCut, rowBytes: Long, heldRowBytes: Long): Int = {
    var rows = 0
    do rows += cut.room(rows)
    while (!cut.endsAt(rows, BatchSize(rows * rowBytes, rows * heldRowBytes)))
    cut.advance()
    rows
  }

  test("batches start with one slice and double until they hold what they aim at") {
    assert(batches(6, rowBytes = 8, heldRowBytes = 8) == Seq(100, 200, 400, 800, 1200, 1200))
  }

  test("a limit on rows makes batches smaller, down to one slice") {
    val cut = new BatchCut(limits)
    val sizes = Seq(Int.MaxValue, Int.MaxValue, Int.MaxValue, 250, 250, 1, Int.MaxValue).map {
      rows =>
        cut.setMostRows(rows)
        batch(cut, rowBytes = 8, heldRowBytes = 8)
    }
    assert(sizes == Seq(100, 200, 400, 300, 300, 100, 1200))
  }

  test("a batch never holds more arguments than it aims at, unless one slice does") {
    assert(batches(4, rowBytes = 30, heldRowBytes = 30) == Seq(100, 200, 300, 300))
    assert(batches(2, rowBytes = 500, heldRowBytes = 500) == Seq(100, 100))
  }

  test("wide pass-through columns bound a batch too") {
    assert(batches(4, rowBytes = 8, heldRowBytes = 190) == Seq(100, 200, 200, 200))
  }

  test("a slice that is too large for a batch is cut inside") {
    assert(batches(2, rowBytes = 50, heldRowBytes = 5000) == Seq(20, 20))
  }

  test("batches end at slices, so that slicing them on the pool gives stock's batches") {
    assert(batches(10, rowBytes = 13, heldRowBytes = 70).forall(_ % 100 == 0))
  }

  test("a function never sees more bytes of arguments than it may, at the very row") {
    assert(batches(2, rowBytes = 1000, heldRowBytes = 1000) == Seq(50, 50))
    val few = limits.copy(sliceRows = 10000, sliceBytes = 800, requestBytes = 800)
    assert(batches(2, rowBytes = 8, heldRowBytes = 8, few) == Seq(100, 100))
  }
}
