// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.trace

import io.opentelemetry.api.trace.propagation.W3CTraceContextPropagator
import io.opentelemetry.api.trace.{Span, SpanBuilder, SpanKind, StatusCode}
import io.opentelemetry.context.Context

import io.updraft.client.{ClientOptions, Endpoint, ExchangeException}
import io.updraft.proto.v1.TaskIdentity
import io.updraft.spark.config.ConnectionSettings

/** OpenTelemetry span below its query's span. */
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
    locate(builder, Endpoint.parse(connection.endpoint))
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
    val builder = options.toBuilder
    W3CTraceContextPropagator
      .getInstance()
      .inject[ClientOptions.Builder](
        Context.root().`with`(span),
        builder,
        (target, header, value) => if (header == "traceparent") target.traceParent(value)
      )
    builder.build()
  }

  override def failed(error: ExchangeException): Unit = {
    span.setAttribute("error.type", error.kind().name().stripPrefix("ERROR_KIND_"))
    span.setStatus(StatusCode.ERROR, error.getMessage.linesIterator.nextOption().getOrElse(""))
  }

  override def end(counts: (String, Long)*): Unit = {
    counts.foreach { case (what, count) => span.setAttribute(s"updraft.$what", count) }
    span.end()
    span = Span.getInvalid
  }
}
