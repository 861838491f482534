// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.trace

import java.nio.charset.StandardCharsets.UTF_8
import java.security.MessageDigest
import java.util.HexFormat

import io.opentelemetry.api.trace.{SpanContext, TraceFlags, TraceState}
import io.opentelemetry.sdk.trace.IdGenerator

/** Ids of a query's own span, which the driver records when the query ends. They are derived from
  * Spark's IDs of the application and the query, so that each executor knows the parent of its
  * spans without asking the driver.
  */
private[trace] object QueryIds {
  private val TraceIdDigits = 32
  private val SpanIdDigits = 16

  /** Return the ids; None for a task outside a query. */
  def of(applicationId: String, queryId: String): Option[SpanContext] =
    Option.when(queryId.nonEmpty) {
      val name = s"$applicationId/$queryId".getBytes(UTF_8)
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
