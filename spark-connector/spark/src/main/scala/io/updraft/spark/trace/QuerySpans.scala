// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.trace

import java.time.Instant
import java.util.WeakHashMap
import java.util.concurrent.ConcurrentHashMap

import io.opentelemetry.api.trace.StatusCode
import org.apache.spark.SparkContext
import org.apache.spark.scheduler.{SparkListener, SparkListenerEvent}
import org.apache.spark.sql.execution.SQLExecution
import org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionEnd

import io.updraft.spark.config.ConnectionSettings

/** Root spans of traces. The driver records a span for each query that uses a pool or a writer. The
  * span begins when the query first uses a pool or a writer.
  */
private[trace] final class QuerySpans(tracing: Tracing, applicationId: String)
    extends SparkListener {
  private[this] val began = new ConcurrentHashMap[Long, Instant]

  def begin(query: Long): Unit = began.putIfAbsent(query, Instant.now())

  override def onOtherEvent(event: SparkListenerEvent): Unit = event match {
    case end: SparkListenerSQLExecutionEnd =>
      Option(began.remove(end.executionId)).foreach(record(end, _))
    case _ =>
  }

  private def record(end: SparkListenerSQLExecutionEnd, from: Instant): Unit =
    QueryIds.of(applicationId, end.executionId.toString).foreach { ids =>
      val span = tracing.beginRoot("updraft.query", ids, from)
      span.setAttribute("updraft.application", applicationId)
      span.setAttribute("updraft.query", end.executionId.toString)
      // The error message is left out, because it may contain the query's data. Spark's own UI
      // shows the message.
      if (end.errorMessage.exists(_.nonEmpty)) span.setStatus(StatusCode.ERROR)
      span.end()
    }
}

object QuerySpans {
  private val ofContext = new WeakHashMap[SparkContext, Map[String, QuerySpans]]

  /** Begin the span of the query that this driver thread executes, because the query now uses a
    * service.
    */
  def begin(connection: ConnectionSettings, context: SparkContext): Unit =
    for {
      endpoint <- connection.traceEndpoint
      tracing <- Tracing.to(endpoint)
      query <- Option(context.getLocalProperty(SQLExecution.EXECUTION_ID_KEY))
    } listener(context, endpoint, tracing).begin(query.toLong)

  private def listener(context: SparkContext, endpoint: String, tracing: Tracing): QuerySpans =
    synchronized {
      val present = ofContext.getOrDefault(context, Map.empty)
      present.getOrElse(
        endpoint, {
          val added = new QuerySpans(tracing, context.applicationId)
          context.addSparkListener(added)
          ofContext.put(context, present.updated(endpoint, added))
          added
        }
      )
    }
}
