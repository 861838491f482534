// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.trace

import io.updraft.client.{ClientOptions, ExchangeException}

/** One exchange or file of a task, for a trace. Used by the task's thread. While tracing is off it
  * is nothing, and no class of OpenTelemetry is loaded.
  */
trait TaskSpan {

  /** The exchange is about to be opened. */
  def begin(): Unit

  /** The options with which the service's spans come to lie below this one. */
  def on(options: ClientOptions): ClientOptions

  /** Why the exchange has failed. */
  def failed(error: ExchangeException): Unit

  /** The exchange is over, after what was counted; only the first call matters. */
  def end(counts: (String, Long)*): Unit
}
