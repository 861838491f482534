// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task

import scala.jdk.OptionConverters._

import org.apache.spark.TaskContext
import org.apache.spark.sql.updraft.SparkInternals

import io.updraft.client.{ClientOptions, ExchangeException, Listener}
import io.updraft.proto.v1.ErrorKind
import io.updraft.spark.trace.TaskSpan

/** Turns what ends an exchange or a file into an error of its task.
  *
  * @param options
  *   by which the peer is called
  */
abstract class TaskFailures(
    options: () => ClientOptions,
    span: TaskSpan,
    context: TaskContext
) {

  /** What Spark's users know in the place of an error of the exchange. */
  protected def failed(e: ExchangeException): Throwable

  /** What listens at the endpoint and what to do, where it is known to be something else than was
    * expected there; else nothing.
    */
  protected final def mistaken(e: ExchangeException): String =
    if (TaskFailures.MayBeOfAnother(e.kind())) {
      val peer = options().peer()
      Listener.mistaken(options()).toScala.fold("")(told =>
        s". $told. Set ${peer.endpointSetting} to a ${peer.noun}"
      )
    } else ""

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

private object TaskFailures {

  /** How calls fail where something else listens than the peer. */
  private val MayBeOfAnother = Set(
    ErrorKind.ERROR_KIND_PROTOCOL,
    ErrorKind.ERROR_KIND_INTERNAL,
    ErrorKind.ERROR_KIND_POOL_UNAVAILABLE
  )
}
