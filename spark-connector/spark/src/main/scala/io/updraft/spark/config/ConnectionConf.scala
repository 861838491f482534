// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.config

import java.net.URI
import java.time.Duration

import io.updraft.client.Peer.Setting
import io.updraft.client.{ClientOptions, Endpoint, Peer, TlsFiles}

/** Settings that pools and writers share: how to reach the service, and how long to wait for it.
  * Each service has its own prefix.
  *
  * The parameters except `peer` are parts of the settings' documentation.
  *
  * @param noun
  *   name of the service
  * @param unit
  *   name of the work that one exchange serves
  * @param unset
  *   end of the text about the endpoint, such as what happens without one
  * @param unreachable
  *   further effects of the connect timeout
  * @param queued
  *   waits that the acquire timeout does not limit
  */
private[config] abstract class ConnectionConf(
    peer: Peer,
    noun: String,
    unit: String,
    unset: String,
    unreachable: String = "",
    queued: String = ""
) {
  protected val prefix: String = peer.setting(Setting.ENDPOINT).stripSuffix("endpoint")

  /** Defaults of the settings that are options of the client. */
  protected val defaults = new ClientOptions.Draft

  val endpoint: ConfigEntry[String] = ConfigEntry(
    peer.setting(Setting.ENDPOINT),
    s"Address of the $noun: `grpc://host:port`, `grpc+tls://host:port` or `grpc+unix:///path`. $unset",
    Values("URI", text => Endpoint.parse(text).toString),
    isCommon = true
  )

  val token: ConfigEntry[String] = ConfigEntry(
    peer.setting(Setting.TOKEN),
    s"Bearer token for the $noun. Spark redacts it in its UI and logs. Set it only where no file can be mounted; " +
      "otherwise use `tokenFile`.",
    Values.text
  )

  val tokenFile: ConfigEntry[String] = ConfigEntry(
    peer.setting(Setting.TOKEN_FILE),
    s"File with the bearer token for the $noun, on the driver and on each executor. Every call reads it, so you can " +
      s"replace the token without a restart: rename a new file to it. A $unit whose token is refused before any work " +
      "was done tries once more if the file has another token by then. Open exchanges keep running.",
    Values.path,
    isCommon = true
  )

  val tlsCaFile: ConfigEntry[String] = ConfigEntry(
    peer.setting(Setting.TLS_CA_FILE),
    s"PEM file with the authorities that sign the $noun's certificate. Set it when they are your own. Not set: the " +
      "authorities of the JVM.",
    Values.path,
    isCommon = true
  )

  val tlsCertificateFile: ConfigEntry[String] = ConfigEntry(
    peer.setting(Setting.TLS_CERTIFICATE_FILE),
    s"PEM file with the client's certificate chain. Set it, with `tls.keyFile`, when the $noun asks for client " +
      "certificates (mutual TLS).",
    Values.path
  )

  val tlsKeyFile: ConfigEntry[String] = ConfigEntry(
    peer.setting(Setting.TLS_KEY_FILE),
    "PEM file with the private key of `tls.certificateFile`, in PKCS 8.",
    Values.path
  )

  val tenant: ConfigEntry[String] = ConfigEntry(
    prefix + "tenant",
    s"Tenant used for fair scheduling. Set it when several teams share a $noun. Not set: each application is its own " +
      "tenant.",
    Values.text
  )

  val connectTimeout: ConfigEntry[Long] = ConfigEntry(
    peer.setting(Setting.CONNECT_TIMEOUT),
    s"Give up on a connection to the $noun that is not established within this time. Raise it on slow networks.$unreachable",
    Values.milliseconds(least = 1),
    Some(Values.text(defaults.connectTimeout))
  )

  val acquireTimeout: ConfigEntry[Long] = ConfigEntry(
    peer.setting(Setting.ACQUIRE_TIMEOUT),
    s"Time for which a task retries if the $noun is full, restarting or not ready. After that the task fails. " +
      s"The waits between retries grow. No work has begun, so none is lost. Raise it if the $noun needs " +
      s"longer to scale up.$queued A name that does not resolve fails after `connectTimeout`, unless the $noun has " +
      "answered this JVM before.",
    Values.milliseconds(least = 0),
    Some(Values.text(defaults.acquireTimeout))
  )

  /** Return the settings declared here, except the endpoint, in the order of the reference page. */
  protected def connectionEntries: Seq[ConfigEntry[_]] =
    Seq(token, tokenFile, tlsCaFile, tlsCertificateFile, tlsKeyFile, tenant) :+
      connectTimeout :+ acquireTimeout

  /** Return the values of these settings, together with the options that pools and writers set in
    * `separately`.
    */
  protected def connection(address: String, lookup: String => Option[String])(
      separately: ClientOptions.Draft => Unit
  ): ConnectionSettings = {
    def text(entry: ConfigEntry[String]) = entry.read(lookup).getOrElse("")
    val options = ClientOptions.of(peer, Endpoint.parse(address)).changed { draft =>
      draft.token = text(token)
      draft.tokenFile = text(tokenFile)
      draft.tls = new TlsFiles(text(tlsCaFile), text(tlsCertificateFile), text(tlsKeyFile))
      draft.tenant = text(tenant)
      draft.connectTimeout = Duration.ofMillis(connectTimeout.require(lookup))
      draft.acquireTimeout = Duration.ofMillis(acquireTimeout.require(lookup))
      separately(draft)
    }
    ConnectionSettings(options, TraceConf.endpoint.read(lookup))
  }
}

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
