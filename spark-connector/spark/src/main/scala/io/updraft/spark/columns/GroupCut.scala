// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.columns

/** Where a request of groups ends: behind a group, or behind a slice of a large one, where a slice
  * is what the function sees at once, counted from the group's first row.
  *
  * The first request is small and each may hold twice as much as the one before, so that the pool
  * starts early. Asked after every row; sizes are looked at only now and then.
  *
  * @param size
  *   of the request so far
  */
final class GroupCut(limits: BatchLimits, size: () => BatchSize) {
  private[this] var aimBytes = math.min(GroupCut.FirstBytes, limits.requestBytes)
  private[this] var lookAt = 1
  private[this] var sliceLeft = limits.sliceRows

  /** Whether a request of so many rows ends here, inside a group that goes on. */
  def endsInsideGroup(rows: Int): Boolean = {
    sliceLeft -= 1
    if (sliceLeft == 0) {
      sliceLeft = limits.sliceRows
      holdsNoSliceMore(rows)
    } else {
      isDue(rows) && limits.areReachedBy(measured(rows))
    }
  }

  private def holdsNoSliceMore(rows: Int): Boolean = {
    val bytes = size()
    val slices = math.max(rows.toDouble / limits.sliceRows, 1)
    bytes.requestBytes * (1 + 1 / slices) > aimBytes ||
    bytes.heldBytes * (1 + 1 / slices) > limits.heldBytes
  }

  /** Whether a request of so many rows and groups ends here, behind a group. */
  def endsBehindGroup(rows: Int, groups: Int): Boolean = {
    sliceLeft = limits.sliceRows
    groups >= GroupCut.MostGroups || isDue(rows) && {
      val bytes = measured(rows)
      bytes.requestBytes >= aimBytes || bytes.heldBytes >= limits.heldBytes
    }
  }

  private def isDue(rows: Int): Boolean = rows >= lookAt

  private def measured(rows: Int): BatchSize = {
    val bytes = size()
    lookAt = rows + limits.lookAhead(rows, bytes)
    bytes
  }

  /** A request was cut. */
  def advance(): Unit = {
    aimBytes = math.min(limits.requestBytes, aimBytes * 2)
    lookAt = 1
    sliceLeft = limits.sliceRows
  }
}

object GroupCut {

  /** Bytes of arguments that the first request aims at. */
  val FirstBytes: Long = 64L << 10

  /** Groups of one request; their ends are at most 40 KiB of the 64 that a message's metadata may
    * have.
    */
  val MostGroups = 8192
}
