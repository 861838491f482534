// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task

import scala.jdk.OptionConverters._

import org.apache.spark.TaskContext
import org.apache.spark.sql.updraft.SparkInternals

import io.updraft.client.{ClientOptions, ExchangeException, Listener}
import io.updraft.proto.v1.ErrorKind
import io.updraft.spark.trace.TaskSpan

/** Translation of failures of an exchange or a file to errors of its task.
  *
  * @param options
  *   options of calls to the peer
  */
abstract class TaskFailures(
    options: () => ClientOptions,
    span: TaskSpan,
    context: TaskContext
) {

  /** Return the error that Spark's users see instead of the exchange's. */
  protected def failed(e: ExchangeException): Throwable

  /** Return what listens at the endpoint and what to do about it, if it is known to differ from the
    * expected peer; otherwise an empty text.
    */
  protected final def wrongPeer(e: ExchangeException): String =
    if (TaskFailures.MayBeOfAnother(e.kind())) {
      val peer = options().peer()
      Listener.wrongPeer(options()).toScala.fold("")(told =>
        s". $told. Set ${peer.endpointSetting} to a ${peer.noun}"
      )
    } else ""

  /** Run `body`; in a killed task, convert its failure to Spark's own kill exception. */
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
