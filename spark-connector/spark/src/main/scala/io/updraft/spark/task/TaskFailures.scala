// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task

import org.apache.spark.TaskContext
import org.apache.spark.sql.updraft.SparkInternals

import io.updraft.client.ExchangeException
import io.updraft.spark.trace.TaskSpan

/** Turns what ends an exchange or a file into an error of its task. */
abstract class TaskFailures(span: TaskSpan, context: TaskContext) {

  /** What Spark's users know in the place of an error of the exchange. */
  protected def failed(e: ExchangeException): Throwable

  /** Runs `body`; whatever ends it in a task that was killed becomes Spark's own kill. */
  final def translate[T](body: => T): T =
    try body
    catch {
      case e @ (_: InterruptedException | _: ExchangeException) if context.isInterrupted() =>
        val kill = SparkInternals.taskKilled(context)
        kill.initCause(e)
        throw kill
      case e: ExchangeException =>
        span.failed(e)
        throw failed(e)
    }
}
