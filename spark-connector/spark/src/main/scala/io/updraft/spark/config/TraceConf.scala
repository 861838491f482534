// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.config

import java.net.URI

/** Setting for tracing, shared by the exchanges of both services. */
object TraceConf {

  val endpoint: ConfigEntry[String] = ConfigEntry(
    "spark.updraft.trace.endpoint",
    "OpenTelemetry collector for the traces of queries that use Updraft, from the driver and the executors: " +
      "`http://host:port` or `https://host:port` (OTLP over gRPC). Set it to see where a query's time goes. Pools and writers add their own spans if they are " +
      "started with `--trace-endpoint`. Not set: no tracing.",
    Values("URI", collector)
  )

  val entries: Seq[ConfigEntry[_]] = Seq(endpoint)

  private def collector(text: String): String = {
    val uri = URI.create(text)
    require(
      Set("http", "https")(uri.getScheme) && uri.getHost != null && uri.getPort > 0,
      "expected http://host:port or https://host:port"
    )
    text
  }
}
