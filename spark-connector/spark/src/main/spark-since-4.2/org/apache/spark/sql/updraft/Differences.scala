// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.arrow.vector.types.pojo.Schema
import org.apache.spark.TaskContext
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.ArrowUtils

/** Notification that a task was killed, even while the task waits. */
object TaskKills {

  def onKill(context: TaskContext)(cancel: String => Unit): Unit =
    context.addTaskInterruptListener((_, reason) => cancel(reason))
}

/** Arrow schemas as Spark makes them. A struct with duplicate field names raises Spark's own error.
  */
object ArrowSchemas {

  def of(schema: StructType, timeZone: String, largeVarTypes: Boolean): Schema = {
    ArrowUtils.failDuplicatedFieldNames(schema)
    ArrowUtils.toArrowSchema(schema, timeZone, largeVarTypes)
  }
}
