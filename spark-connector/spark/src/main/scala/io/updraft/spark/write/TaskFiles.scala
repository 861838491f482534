// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write

import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import org.apache.spark.TaskContext
import org.apache.spark.sql.updraft.TaskKills

import io.updraft.proto.v1.{Receipt, WriteCommand}

/** Open file of a task. */
trait TaskFile {

  def path: String

  /** Return the command that opened the file at the writer. */
  def command: WriteCommand

  /** Return the writer's receipt; None before the end, and for an abandoned file. */
  def receipt: Option[Receipt]

  /** End the file from another thread. */
  def cancel(reason: String): Unit

  /** Release everything, once; an incomplete file is abandoned. */
  def release(): Unit
}

/** Open files of one task: tracks whether the task has failed, and ends each file when the task is
  * killed or has ended. Spark closes the files of a failed task in the same way as finished ones;
  * only the task can tell the difference.
  */
final class TaskFiles private (context: TaskContext) {
  private[this] val open = ConcurrentHashMap.newKeySet[TaskFile]()
  @volatile private[this] var failure: Option[Throwable] = None
  private[this] var ofPlan: Option[WriteMetrics] = None

  context.addTaskFailureListener((_, error) => failure = Some(error))
  context.addTaskCompletionListener[Unit] { _ =>
    TaskFiles.forget(context)
    open.forEach(_.release())
  }
  TaskKills.onKill(context)(reason => open.forEach(_.cancel(reason)))

  /** Return why the task fails; None if the task has not failed. */
  def failed: Option[Throwable] = failure

  /** Return the metrics of the plan, which also record the files' costs; None if the plan has none.
    */
  def planMetrics: Option[WriteMetrics] = ofPlan

  def report(costs: WriteMetrics): Unit = ofPlan = Some(costs)

  def add(file: TaskFile): Unit = {
    open.add(file)
    // If the task was killed before this call, nothing has cancelled this file yet.
    if (context.isInterrupted()) file.cancel("the task was killed")
  }

  def remove(file: TaskFile): Unit = open.remove(file)

  /** Return the open file with a path. */
  def find(path: String): Option[TaskFile] = open.asScala.find(_.path == path)
}

object TaskFiles {
  private val tasks = new ConcurrentHashMap[Long, TaskFiles]

  /** Return the files of a task; called on the task's own thread. */
  def of(context: TaskContext): TaskFiles =
    Option(tasks.get(context.taskAttemptId())).getOrElse {
      val made = new TaskFiles(context)
      tasks.put(context.taskAttemptId(), made)
      made
    }

  private def forget(context: TaskContext): Unit = tasks.remove(context.taskAttemptId())
}
