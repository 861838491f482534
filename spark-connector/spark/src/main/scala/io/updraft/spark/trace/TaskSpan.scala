// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.trace

import io.opentelemetry.api.trace.propagation.W3CTraceContextPropagator
import io.opentelemetry.api.trace.{Span, SpanBuilder, SpanKind, StatusCode}
import io.opentelemetry.context.Context

import io.updraft.client.{ClientOptions, Endpoint, ExchangeException}
import io.updraft.proto.v1.TaskIdentity
import io.updraft.spark.config.ConnectionSettings

/** Trace span for one exchange with a pool, or one file of a writer. Only the task's thread uses
  * the span. While tracing is off, the span does nothing and loads no OpenTelemetry class.
  */
trait TaskSpan {

  /** Begin the span, just before the exchange is opened. */
  def begin(): Unit

  /** Return the options with which the service's spans become children of this span. */
  def on(options: ClientOptions): ClientOptions

  /** Record why the exchange has failed. */
  def failed(error: ExchangeException): Unit

  /** End the span with these counts; only the first call has an effect. */
  def end(counts: (String, Long)*): Unit
}

/** Factory of a task's spans: recorded spans if there is a collector, otherwise a span that does
  * nothing.
  */
object TaskSpans {

  /** Return a span named `name`. The span evaluates `identity` when it begins. */
  def of(name: String, connection: ConnectionSettings, identity: => TaskIdentity): TaskSpan =
    connection.traceEndpoint
      .flatMap(Tracing.to)
      .fold[TaskSpan](Off)(new RecordedSpan(name, _, connection, identity))

  private object Off extends TaskSpan {
    override def begin(): Unit = ()
    override def on(options: ClientOptions): ClientOptions = options
    override def failed(error: ExchangeException): Unit = ()
    override def end(counts: (String, Long)*): Unit = ()
  }
}

/** OpenTelemetry span whose parent is the query's span. */
private[trace] final class RecordedSpan(
    name: String,
    tracing: Tracing,
    connection: ConnectionSettings,
    identity: => TaskIdentity
) extends TaskSpan {
  private[this] var span = Span.getInvalid

  override def begin(): Unit = {
    val task = identity
    val builder = tracing.tracer.spanBuilder(name).setSpanKind(SpanKind.CLIENT)
    identify(builder, task)
    locate(builder, connection.options.endpoint)
    QueryIds.of(task.getOwner.getApplicationId, task.getQueryId).foreach { query =>
      builder.setParent(Context.root().`with`(Span.wrap(query)))
    }
    span = builder.startSpan()
  }

  private def identify(builder: SpanBuilder, task: TaskIdentity): Unit = {
    builder.setAttribute("updraft.application", task.getOwner.getApplicationId)
    builder.setAttribute("updraft.query", task.getQueryId)
    builder.setAttribute("updraft.stage", s"${task.getStageId}.${task.getStageAttemptNumber}")
    builder.setAttribute("updraft.partition", task.getPartitionId.toLong)
    builder.setAttribute("updraft.attempt", task.getAttemptNumber.toLong)
  }

  private def locate(builder: SpanBuilder, endpoint: Endpoint): Unit =
    if (endpoint.transport == Endpoint.Transport.UNIX) {
      builder.setAttribute("server.address", endpoint.path)
    } else {
      builder.setAttribute("server.address", endpoint.host)
      builder.setAttribute("server.port", endpoint.port.toLong)
    }

  override def on(options: ClientOptions): ClientOptions = {
    var traceParent = ""
    W3CTraceContextPropagator
      .getInstance()
      .inject[Null](
        Context.root().`with`(span),
        null,
        (_, header, value) => if (header == "traceparent") traceParent = value
      )
    options.changed(_.traceParent = traceParent)
  }

  override def failed(error: ExchangeException): Unit = {
    span.setAttribute("error.type", error.kind().name().stripPrefix("ERROR_KIND_"))
    span.setStatus(StatusCode.ERROR, error.getMessage.linesIterator.find(_ => true).getOrElse(""))
  }

  override def end(counts: (String, Long)*): Unit = {
    counts.foreach { case (what, count) => span.setAttribute(s"updraft.$what", count) }
    span.end()
    span = Span.getInvalid
  }
}
