// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.TaskContext

/** Collector of Python workers' logs that does nothing, because Spark collects such logs only since
  * 4.1.
  */
final class WorkerLogs(session: Option[String], context: TaskContext) extends AutoCloseable {

  def add(line: String): Unit = ()

  override def close(): Unit = ()
}
