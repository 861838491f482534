// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write

import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.TaskContext
import org.apache.spark.sql.updraft.TaskKills

/** A file that a task has open. */
trait TaskFile {

  /** Ends the file from another thread. */
  def cancel(reason: String): Unit

  /** Lets go of everything, once; a file that is not complete is given up. */
  def release(): Unit
}

/** The files that one task has open: whether they are still wanted, and an end for each of them
  * when the task is killed or has ended. Spark closes the files of a failed task as it closes
  * finished ones; only the task knows which it is.
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

  /** Why the task fails, if it does. */
  def failed: Option[Throwable] = failure

  /** Where the plan wants the files' costs shown too. */
  def planMetrics: Option[WriteMetrics] = ofPlan

  def report(costs: WriteMetrics): Unit = ofPlan = Some(costs)

  def add(file: TaskFile): Unit = {
    open.add(file)
    // A kill before found nothing to cancel.
    if (context.isInterrupted()) file.cancel("the task was killed")
  }

  def remove(file: TaskFile): Unit = open.remove(file)
}

object TaskFiles {
  private val tasks = new ConcurrentHashMap[Long, TaskFiles]

  /** Called by the task's own thread. */
  def of(context: TaskContext): TaskFiles =
    Option(tasks.get(context.taskAttemptId())).getOrElse {
      val made = new TaskFiles(context)
      tasks.put(context.taskAttemptId(), made)
      made
    }

  private def forget(context: TaskContext): Unit = tasks.remove(context.taskAttemptId())
}
