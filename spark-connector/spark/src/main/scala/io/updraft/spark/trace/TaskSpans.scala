// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.trace

import io.updraft.client.{ClientOptions, ExchangeException}
import io.updraft.proto.v1.TaskIdentity
import io.updraft.spark.config.ConnectionSettings

/** Factory of a task's spans: recorded ones if there is a collector, otherwise one that does
  * nothing.
  */
object TaskSpans {

  /** Return a span named `name`, which evaluates `identity` when it begins. */
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
