// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task

import java.util.concurrent.TimeUnit

/** Limit on the rows of a request, so that the function takes about 50 ms for each request. The
  * fixed cost of a request is far less than a millisecond, so larger requests of a slow function
  * save nothing. Smaller requests can be divided between more workers, and a LIMIT or a kill wastes
  * less work.
  *
  * A task that does not wait for its function has no limit.
  */
private[task] final class BatchPace {
  private[this] var hasReply = false
  private[this] var rows = 0.0
  private[this] var waited = 0.0

  /** Record a reply and how long the task has waited for it. Ignore the first reply, because its
    * worker may have had to start.
    */
  def answered(replyRows: Int, nanoseconds: Long): Unit = {
    if (hasReply) {
      rows = BatchPace.Memory * rows + replyRows
      waited = BatchPace.Memory * waited + nanoseconds.toDouble
    }
    hasReply = true
  }

  /** Return the limit on the rows of a request while this many workers serve the task at the same
    * time.
    */
  def mostRows(workers: Int): Int =
    if (waited == 0.0) Int.MaxValue
    else math.max(
      1.0,
      math.min(BatchPace.Nanoseconds * rows / (waited * workers), Int.MaxValue.toDouble)
    ).toInt
}

private object BatchPace {
  private val Nanoseconds = TimeUnit.MILLISECONDS.toNanos(50).toDouble

  /** Weight of earlier replies. Replies of several workers come in bursts, so a single wait means
    * little.
    */
  private val Memory = 0.9
}
