// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.groups

import java.util.ArrayDeque

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.updraft.InputFiles

import io.updraft.client.BatchGroups
import io.updraft.spark.task.input.{Request, RequestSource}

/** Source of requests from two inputs that are sorted by the same keys. The requests form runs. A
  * run consists of the left rows of some groups, then the right rows of the same groups. A group
  * that is missing on one side is sent as an empty group of that side.
  */
final class CogroupedFeed(
    left: GroupedSide,
    right: GroupedSide,
    ordering: Ordering[InternalRow],
    files: InputFiles
) extends RequestSource {
  private[this] val ready = new ArrayDeque[Request](2)
  private[this] var position = Position.Unstarted
  private[this] var side = 0
  private[this] var rightWasSent = false

  override def next(): Option[Request] = {
    files.ofChild {
      while (ready.isEmpty && position != Position.Ended) step()
    }
    Option(ready.poll())
  }

  private def step(): Unit = position = position match {
    case Position.Unstarted =>
      left.start()
      right.start()
      Position.Between
    case Position.Between => chooseGroup()
    case Position.InLeft => copyLeft()
    case Position.InRight => copyRight()
    case _ => Position.Ended
  }

  private def chooseGroup(): Position.Value =
    if (left.key == null && right.key == null) {
      sendRun()
      Position.Ended
    } else {
      side =
        if (left.key == null) 1
        else if (right.key == null) -1
        else ordering.compare(left.key, right.key)
      Position.InLeft
    }

  private def copyLeft(): Position.Value =
    if (side > 0) {
      left.skipGroup()
      Position.InRight
    } else if (left.copyGroup()) {
      Position.InRight
    } else {
      sendLeft()
      Position.InLeft
    }

  private def copyRight(): Position.Value =
    if (side < 0) {
      right.skipGroup()
      endGroup()
    } else if (right.copyGroup()) {
      endGroup()
    } else {
      sendRight()
      Position.InRight
    }

  /** End the group. If right rows of the run are already sent, the run cannot include another left
    * group, so the run ends, too.
    */
  private def endGroup(): Position.Value = {
    if (rightWasSent || left.isFull || right.isFull) sendRun()
    Position.Between
  }

  private def sendRun(): Unit = {
    sendRight()
    rightWasSent = false
  }

  private def sendRight(): Unit = {
    sendLeft()
    if (!right.isEmpty) {
      val request = right.request(files.current)
      ready.add(request.copy(groups = new BatchGroups(request.groups.ends, 1)))
      rightWasSent = true
    }
  }

  private def sendLeft(): Unit = if (!left.isEmpty) ready.add(left.request(files.current))

  override def close(): Unit = {
    while (!ready.isEmpty) {
      val request = ready.poll()
      request.batch.close()
      request.kept.close()
    }
    left.close()
    right.close()
  }
}

/** Position of a task among its groups. */
private object Position extends Enumeration {
  val Unstarted, Between, InLeft, InRight, Ended = Value
}
