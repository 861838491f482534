// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.execution.python.PythonExceptions
import org.apache.spark.{SparkException, TaskContext}

import io.updraft.client.ExchangeException
import io.updraft.proto.v1.{ErrorKind, Report}
import io.updraft.spark.config.{UdfSettings, UpdraftConf}
import io.updraft.spark.trace.TaskSpan

/** Translation of an exchange's errors to those that Spark's users know. It also passes accumulator
  * updates to Spark.
  */
final class Failures(
    function: TaskFunction,
    settings: UdfSettings,
    span: TaskSpan,
    context: TaskContext
) extends TaskFailures(() => settings.clientOptions(), span, context) {

  /** Return the error for the user; an exception of the user's function becomes Spark's
    * PythonException.
    */
  override protected def failed(e: ExchangeException): Throwable =
    if (e.kind() == ErrorKind.ERROR_KIND_USER) userError(e) else poolError(e)

  /** Add the accumulator updates that the function made on the pool. */
  def report(report: Report): Unit =
    function.accumulator.foreach { accumulator =>
      report.getAccumulatorUpdatesList.asScala.foreach(update =>
        accumulator.add(update.toByteArray)
      )
    }

  private def userError(e: ExchangeException): Throwable = {
    val traceback = e.details().map[String](_.getTraceback).filter(_.nonEmpty).orElse(e.getMessage)
    PythonExceptions.of(traceback)
  }

  private def poolError(e: ExchangeException): Throwable = new SparkException(
    s"${function.names} failed on the pool at ${settings.endpoint} (${UpdraftConf.endpoint.key}) in task " +
      s"${context.partitionId()}.${context.attemptNumber()} of stage ${context.stageId()} " +
      s"(TID ${context.taskAttemptId()}): ${e.getMessage} [${e.code()}]${wrongPeer(e)}${crash(e)}",
    e
  )

  /** Return the Python stack of a crashed worker, in the words of stock Spark. */
  private def crash(e: ExchangeException): String =
    e.details()
      .map[String](_.getTraceback)
      .filter(_.nonEmpty)
      .map[String](stack => s"\nPython worker exited unexpectedly (crashed): $stack")
      .orElse("")
}
