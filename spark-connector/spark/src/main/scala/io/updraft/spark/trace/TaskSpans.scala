// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.trace

import io.updraft.client.{ClientOptions, ExchangeException}
import io.updraft.proto.v1.TaskIdentity
import io.updraft.spark.config.ConnectionSettings

/** Gives a task its spans: recorded ones where there is a collector, and else one that does
  * nothing.
  */
object TaskSpans {

  /** A span named `name`, which begins when it is told to and then asks whose work it is. */
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
