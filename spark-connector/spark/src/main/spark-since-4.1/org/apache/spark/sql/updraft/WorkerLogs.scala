// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import scala.collection.mutable

import org.apache.spark.storage.{
  PythonWorkerLogBlockIdGenerator,
  PythonWorkerLogLine,
  RollingLogWriter
}
import org.apache.spark.{SparkEnv, TaskContext}

/** Log lines of the functions of one exchange. This class stores them where Spark looks for the
  * logs of Python workers (`python_worker_logs()`). Only the task's thread uses this class.
  */
final class WorkerLogs(session: Option[String], context: TaskContext) extends AutoCloseable {
  private[this] val writers = mutable.Map.empty[String, RollingLogWriter]
  private[this] var lines = 0L

  /** Store a line as PySpark's worker writes it: a mark, the worker's number, and JSON. */
  def add(line: String): Unit = session.foreach { id =>
    line.split(":", 3) match {
      case Array(_, worker, json) if json.nonEmpty =>
        val entry = PythonWorkerLogLine(System.currentTimeMillis(), lines, json)
        writers.getOrElseUpdate(worker, writer(id, worker)).writeLog(entry)
        lines += 1
      case _ => // The end mark, after which nothing follows.
    }
  }

  /** Return a writer for a worker of this task. Its blocks have the task's id, because workers of
    * several pools may have the same number.
    */
  private def writer(session: String, worker: String): RollingLogWriter = {
    val blocks =
      new PythonWorkerLogBlockIdGenerator(session, s"${context.taskAttemptId()}-$worker")
    SparkEnv.get.blockManager.getRollingLogWriter(blocks)
  }

  override def close(): Unit = {
    writers.values.foreach(_.close())
    writers.clear()
  }
}
