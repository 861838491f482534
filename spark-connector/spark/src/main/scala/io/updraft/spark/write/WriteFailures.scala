// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write

import org.apache.spark.{SparkException, TaskContext}

import io.updraft.client.ExchangeException
import io.updraft.proto.v1.ErrorKind
import io.updraft.spark.config.{WriteConf, WriteSettings}
import io.updraft.spark.task.TaskFailures
import io.updraft.spark.trace.TaskSpan

/** Translation of a file's failures to errors of its task that name the file, the writer and the
  * remedy.
  */
final class WriteFailures(
    path: String,
    settings: WriteSettings,
    span: TaskSpan,
    context: TaskContext
) extends TaskFailures(settings.clientOptions, span, context) {

  override protected def failed(e: ExchangeException): Throwable = new SparkException(
    s"the writer at ${settings.endpoint} (${WriteConf.endpoint.key}) did not write $path in task " +
      s"${context.partitionId()}.${context.attemptNumber()} of stage ${context.stageId()}: " +
      s"${e.getMessage} [${e.code()}]${advice(e.kind())}${wrongPeer(e)}",
    e
  )

  private def advice(kind: ErrorKind): String = kind match {
    case ErrorKind.ERROR_KIND_WRITE_REFUSED =>
      WriteFailures.OutsideTheRoots
    case ErrorKind.ERROR_KIND_QUOTA =>
      s". Give the writer a larger --quota-bytes or more time (${WriteConf.acquireTimeout.key})"
    case ErrorKind.ERROR_KIND_LIMIT =>
      s". Reduce ${WriteConf.batchBytes.key}, the target size of a batch"
    case ErrorKind.ERROR_KIND_WRITE_OPTION =>
      ". Write such files with Spark's own format"
    case _ => ""
  }
}

object WriteFailures {

  /** Advice about a path that the writer may not write to. */
  val OutsideTheRoots: String =
    s". Start the writer with a --root above that path, or set ${WriteConf.delivery.key} = return"
}
