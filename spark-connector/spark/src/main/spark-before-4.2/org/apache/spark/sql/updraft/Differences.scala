// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import java.util.concurrent.TimeUnit

import org.apache.arrow.vector.types.pojo.Schema
import org.apache.spark.TaskContext
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.ArrowUtils
import org.apache.spark.util.ThreadUtils

/** Notification that a task was killed, even while the task waits. Spark has no listener for that
  * before 4.2, so one thread polls every task that has an exchange.
  */
object TaskKills {
  private val PeriodMilliseconds = 100L
  private lazy val watch =
    ThreadUtils.newDaemonSingleThreadScheduledExecutor("updraft-task-kills")

  /** Call `cancel`, possibly more than once, if the task is killed. */
  def onKill(context: TaskContext)(cancel: String => Unit): Unit = {
    val look: Runnable = () => context.getKillReason().foreach(cancel)
    val looking = watch.scheduleWithFixedDelay(
      look,
      PeriodMilliseconds,
      PeriodMilliseconds,
      TimeUnit.MILLISECONDS
    )
    context.addTaskCompletionListener[Unit](_ => looking.cancel(false))
  }
}

/** Arrow schemas as Spark makes them. A struct with duplicate field names raises Spark's own error.
  */
object ArrowSchemas {

  def of(schema: StructType, timeZone: String, largeVarTypes: Boolean): Schema =
    ArrowUtils.toArrowSchema(
      schema,
      timeZone,
      errorOnDuplicatedFieldNames = true,
      largeVarTypes
    )
}
