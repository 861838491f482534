// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.trace

import io.updraft.client.{ClientOptions, ExchangeException}

/** Trace span of one exchange or file of a task. Used by the task's thread. While tracing is off,
  * it does nothing, and no OpenTelemetry class is loaded.
  */
trait TaskSpan {

  /** Begin the span, just before the exchange is opened. */
  def begin(): Unit

  /** Return the options with which the service's spans become children of this one. */
  def on(options: ClientOptions): ClientOptions

  /** Record why the exchange has failed. */
  def failed(error: ExchangeException): Unit

  /** End the span with these counts; only the first call has an effect. */
  def end(counts: (String, Long)*): Unit
}
