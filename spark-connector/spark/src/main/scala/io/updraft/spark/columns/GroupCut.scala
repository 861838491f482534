// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.columns

/** Decision of where a request of groups ends: after a group or, if the group is large, after a
  * slice of the group. A slice is the rows that the function sees at once, counted from the group's
  * first row.
  *
  * The first request is small, and each following request may hold twice as much as the request
  * before, so that the pool starts early. The caller calls this class for every row, but the class
  * measures the size only now and then.
  *
  * @param size
  *   size of the request so far
  */
final class GroupCut(limits: BatchLimits, size: () => BatchSize) {
  private[this] var aimBytes = math.min(GroupCut.FirstBytes, limits.requestBytes)
  private[this] var lookAt = 1
  private[this] var sliceLeft = limits.sliceRows

  /** Return whether a request with this many rows ends here, inside a group that continues. */
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

  /** Return whether a request with this many rows and groups ends here, after a group. */
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

  /** Start the next request. */
  def advance(): Unit = {
    aimBytes = math.min(limits.requestBytes, aimBytes * 2)
    lookAt = 1
    sliceLeft = limits.sliceRows
  }
}

object GroupCut {

  /** Target size of the first request, in bytes of arguments. */
  val FirstBytes: Long = 64L << 10

  /** Maximum number of groups in one request. The positions of their ends take at most 40 KiB of
    * the 64 KiB allowed for a message's metadata.
    */
  val MostGroups = 8192
}
