// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.trace

import java.nio.charset.StandardCharsets.UTF_8
import java.security.MessageDigest
import java.time.{Duration, Instant}
import java.util.HexFormat
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.TimeUnit.SECONDS

import scala.util.control.NonFatal

import io.opentelemetry.api.trace.{Span, SpanContext, TraceFlags, TraceState, Tracer}
import io.opentelemetry.exporter.otlp.trace.OtlpGrpcSpanExporter
import io.opentelemetry.sdk.resources.Resource
import io.opentelemetry.sdk.trace.`export`.BatchSpanProcessor
import io.opentelemetry.sdk.trace.{IdGenerator, SdkTracerProvider}
import org.apache.spark.SparkEnv
import org.apache.spark.sql.updraft.SparkInternals
import org.slf4j.LoggerFactory

/** Trace exporter of this JVM for one collector. Ended spans wait in a bounded queue for a separate
  * thread; if the queue is full, new spans are dropped. No task waits for the collector or fails
  * because of the collector.
  */
private[trace] final class Tracing private (endpoint: String) {
  private[this] val ids = new GivenIds
  private[this] val provider = SdkTracerProvider
    .builder()
    .setResource(Tracing.resource)
    .setIdGenerator(ids)
    .addSpanProcessor(
      BatchSpanProcessor
        .builder(
          OtlpGrpcSpanExporter.builder().setEndpoint(endpoint).setTimeout(Tracing.Timeout).build()
        )
        .setExporterTimeout(Tracing.Timeout)
        .setScheduleDelay(Tracing.Interval)
        .build()
    )
    .build()

  SparkInternals.onExit(() => provider.shutdown().join(Tracing.Timeout.toSeconds, SECONDS))

  val tracer: Tracer = provider.get("io.updraft.spark")

  /** Begin a root span with these ids. */
  def beginRoot(name: String, context: SpanContext, began: Instant): Span = ids.using(context) {
    tracer.spanBuilder(name).setNoParent().setStartTimestamp(began).startSpan()
  }
}

private[trace] object Tracing {
  private val log = LoggerFactory.getLogger(getClass)
  private val Timeout = Duration.ofSeconds(3)
  private val Interval = Duration.ofSeconds(1)
  private val byEndpoint = new ConcurrentHashMap[String, Option[Tracing]]

  /** Return the exporter for a collector; None, with one warning, if it cannot be created. */
  def to(endpoint: String): Option[Tracing] = byEndpoint.computeIfAbsent(
    endpoint,
    _ =>
      try Some(new Tracing(endpoint))
      catch {
        case NonFatal(e) =>
          log.warn(s"cannot export traces to $endpoint", e)
          None
      }
  )

  private def resource: Resource = {
    val env = SparkEnv.get
    val instance = s"${env.conf.get("spark.app.id", "")}:${env.executorId}"
    Resource.getDefault.toBuilder
      .put("service.name", "spark")
      .put("service.instance.id", instance)
      .build()
  }
}

/** Ids of a query's own span, which the driver records when the query ends. The ids are derived
  * from Spark's ids of the application and the query, so that each executor knows the parent of its
  * spans without asking the driver.
  */
private[trace] object QueryIds {
  private val TraceIdDigits = 32
  private val SpanIdDigits = 16

  /** Return the ids; None for a task outside a query. */
  def of(applicationId: String, queryId: String): Option[SpanContext] =
    Some(queryId).filter(_.nonEmpty).map { id =>
      val name = s"$applicationId/$id".getBytes(UTF_8)
      val digits = HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(name))
      SpanContext.create(
        digits.take(TraceIdDigits),
        digits.slice(TraceIdDigits, TraceIdDigits + SpanIdDigits),
        TraceFlags.getSampled,
        TraceState.getDefault
      )
    }
}

/** Generator of random ids, except for the span begun within [[using]]. */
private[trace] final class GivenIds extends IdGenerator {
  private[this] val chosen = new ThreadLocal[SpanContext]

  def using[T](ids: SpanContext)(begin: => T): T = {
    chosen.set(ids)
    try begin
    finally chosen.remove()
  }

  override def generateTraceId(): String =
    Option(chosen.get).fold(IdGenerator.random().generateTraceId())(_.getTraceId)

  override def generateSpanId(): String =
    Option(chosen.get).fold(IdGenerator.random().generateSpanId())(_.getSpanId)
}
