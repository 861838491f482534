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
  private[this] var lookAt = GroupCut.FirstRows
  private[this] var sliceLeft = limits.sliceRows

  /** Whether a request of so many rows ends here, inside a group that goes on. */
  def endsInsideGroup(rows: Int): Boolean = {
    sliceLeft -= 1
    if (sliceLeft == 0) {
      sliceLeft = limits.sliceRows
      holdsNoSliceMore(rows)
    } else {
      isDue(rows) && size().heldBytes >= limits.ceilingBytes
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
      val bytes = size()
      bytes.requestBytes >= aimBytes || bytes.heldBytes >= limits.heldBytes
    }
  }

  private def isDue(rows: Int): Boolean = {
    val due = rows >= lookAt
    if (due) lookAt = rows + math.min(rows, GroupCut.MostRows)
    due
  }

  /** A request was cut. */
  def advance(): Unit = {
    aimBytes = math.min(limits.requestBytes, aimBytes * 2)
    lookAt = GroupCut.FirstRows
  }
}

object GroupCut {

  /** Bytes of arguments that the first request aims at. */
  val FirstBytes: Long = 64L << 10

  /** Groups of one request; their ends are at most 40 KiB of the 64 that a message's metadata may
    * have.
    */
  val MostGroups = 8192

  /** Rows after which sizes are looked at: at first, and at the most. */
  val FirstRows = 16
  val MostRows = 4096
}
