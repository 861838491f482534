// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.workers

import java.io.File

import org.apache.spark.SparkContext
import org.apache.spark.sql.updraft.SessionFiles

/** Files that the application has distributed to its executors. Only the driver knows the files'
  * names. On an executor, the files share the working directory with files of Spark and of the
  * resource manager, such as tokens.
  */
private[spark] object DistributedFiles {

  /** Executor's question to the driver for the names of a session's files. */
  final case class Question(session: Option[String]) {
    def answer(context: SparkContext): Array[String] = SessionFiles.names(context, session).toArray
  }

  @volatile private var ask: Question => Array[String] = (_: Question) =>
    throw new IllegalStateException("the plugin of the connector has not started")

  /** Set the function with which this process asks the driver from now on. */
  def askBy(way: Question => Array[String]): Unit = ask = way

  /** Return the files of a session that this process has, by name. */
  def of(session: Option[String]): Seq[(String, File)] = {
    val names = ask(Question(session)).toSeq
    val files = SessionFiles(names, session)
    names.map(name => name -> files.file(name)).filter { case (_, file) => file.exists() }
  }
}
