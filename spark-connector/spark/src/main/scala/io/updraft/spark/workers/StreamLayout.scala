// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.workers

/** Differences between Spark versions in the stream that a task's worker reads.
  *
  * @param hasUnusedBarrierPort
  *   true if tasks outside of barrier stages have a barrier port and a secret, too
  * @param hasJsonTask
  *   true if the task is JSON; otherwise it is a sequence of numbers
  * @param isFramed
  *   true if the header's length precedes the header
  */
final case class StreamLayout(
    hasUnusedBarrierPort: Boolean,
    hasJsonTask: Boolean,
    isFramed: Boolean
)

object StreamLayout {

  /** Return the layout of a Spark version, such as "4.1.4"; None for a version before 4.0. */
  def of(version: String): Option[StreamLayout] = {
    val numbers = version.split('.').take(2).map(_.toInt)
    val minor = numbers(0) * 100 + numbers(1)
    if (minor < 400) None
    else
      Some(StreamLayout(
        hasUnusedBarrierPort = minor < 401,
        hasJsonTask = minor >= 402,
        isFramed = minor >= 403
      ))
  }
}
