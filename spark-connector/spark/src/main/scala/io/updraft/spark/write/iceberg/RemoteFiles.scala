// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write.iceberg

import java.util.UUID
import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.TaskContext

import io.updraft.spark.config.WriteSettings
import io.updraft.spark.write.WriteMetrics

/** Data files of one write that a writer makes; made on the driver, sent to the tasks.
  *
  * @param write
  *   random name of the write
  */
final case class RemoteFiles(
    settings: WriteSettings,
    metrics: WriteMetrics,
    write: String = UUID.randomUUID().toString
) {

  /** Return a file's size as a share of the size of its rows in batches, as measured in this
    * executor; 1 before the executor has finished a file of the write.
    */
  def storedShare: Double = RemoteFiles.share(write)

  /** Record a finished file. */
  def stored(fileBytes: Long, rawBytes: Long): Unit =
    if (rawBytes > 0) RemoteFiles.record(write, fileBytes.toDouble / rawBytes)
}

object RemoteFiles {

  /** Number of writes whose shares an executor keeps. */
  private val KeptWrites = 100

  private val tasks = new ConcurrentHashMap[Long, RemoteFiles]

  private val shares = new java.util.LinkedHashMap[String, Double] {
    override def removeEldestEntry(eldest: java.util.Map.Entry[String, Double]): Boolean =
      size() > KeptWrites
  }

  private def share(write: String): Double = shares.synchronized(shares.getOrDefault(write, 1.0))

  private def record(write: String, share: Double): Unit =
    shares.synchronized(shares.put(write, share): Unit)

  /** Let the writer make the data files that this task opens from now on. */
  def begin(files: RemoteFiles, context: TaskContext): Unit = {
    tasks.put(context.taskAttemptId(), files)
    context.addTaskCompletionListener[Unit](_ => tasks.remove(context.taskAttemptId()))
  }

  /** Return the files of the current task; None if Iceberg makes them. */
  def current: Option[RemoteFiles] =
    Option(TaskContext.get()).flatMap(context => Option(tasks.get(context.taskAttemptId())))
}
