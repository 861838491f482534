// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.TaskContext

/** Notification of the kill of a task that may be waiting. */
object TaskKills {

  def onKill(context: TaskContext)(cancel: String => Unit): Unit =
    context.addTaskInterruptListener((_, reason) => cancel(reason))
}
