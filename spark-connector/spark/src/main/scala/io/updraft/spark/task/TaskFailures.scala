// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.execution.python.PythonExceptions
import org.apache.spark.sql.updraft.SparkInternals
import org.apache.spark.{SparkException, TaskContext}

import io.updraft.client.{ClientOptions, ExchangeException, Listener, Peer}
import io.updraft.proto.v1.{ErrorKind, Report}
import io.updraft.spark.config.{UdfSettings, UpdraftConf}
import io.updraft.spark.trace.TaskSpan

/** Translation of an exchange's or a file's failures to errors of the task.
  *
  * @param options
  *   options of calls to the peer
  */
abstract class TaskFailures(
    options: ClientOptions,
    span: TaskSpan,
    context: TaskContext
) {

  /** Return the error that Spark's users see instead of the exchange's error. */
  protected def failed(e: ExchangeException): Throwable

  /** If the listener at the endpoint is certainly not the expected peer, describe the listener and
    * name the setting to correct. Otherwise, return an empty text.
    */
  protected final def wrongPeer(e: ExchangeException): String =
    if (TaskFailures.MayBeOfAnother(e.kind())) {
      val peer = options.peer()
      Option(Listener.wrongPeer(options).orElse(null)).fold("")(told =>
        s". $told. Set ${peer.setting(Peer.Setting.ENDPOINT)} to a ${peer.noun}"
      )
    } else ""

  /** Run `body`. If `body` fails in a killed task, raise Spark's own kill exception instead. */
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

private object TaskFailures {

  /** Kinds of failures that a listener other than the peer may cause. */
  private val MayBeOfAnother = Set(
    ErrorKind.ERROR_KIND_PROTOCOL,
    ErrorKind.ERROR_KIND_INTERNAL,
    ErrorKind.ERROR_KIND_POOL_UNAVAILABLE
  )
}

/** Translation of an exchange's errors to errors that Spark's users know. It also passes
  * accumulator updates to Spark.
  */
final class Failures(
    function: TaskFunction,
    settings: UdfSettings,
    span: TaskSpan,
    context: TaskContext
) extends TaskFailures(settings.clientOptions, span, context) {

  /** Return the error for the user. An exception of the user's function becomes Spark's
    * PythonException.
    */
  override protected def failed(e: ExchangeException): Throwable =
    if (e.kind() == ErrorKind.ERROR_KIND_USER) userError(e) else poolError(e)

  /** Add the accumulator updates that the function made on the pool. */
  def report(report: Report): Unit = {
    if (report.getAccumulatorUpdatesCount > 0) function.once.foreach(_.foundAccumulator())
    function.accumulator.foreach { accumulator =>
      report.getAccumulatorUpdatesList.asScala.foreach(update =>
        accumulator.add(update.toByteArray)
      )
    }
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
