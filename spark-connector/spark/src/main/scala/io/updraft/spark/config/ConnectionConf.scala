// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.config

import io.updraft.client.{Endpoint, Peer}

/** Settings shared by pools and writers, under two prefixes: how to reach the service, and how long
  * to wait for it.
  *
  * @param noun
  *   name of the service
  * @param unit
  *   unit of work that one exchange serves
  * @param unset
  *   meaning of an absent endpoint
  * @param unreachable
  *   other effects of the connect timeout
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
  protected val prefix: String = peer.endpointSetting.stripSuffix("endpoint")

  val endpoint: ConfigEntry[String] = ConfigEntry(
    peer.endpointSetting,
    s"Address of the $noun: `grpc://host:port`, `grpc+tls://host:port` or `grpc+unix:///path`. $unset",
    Values("URI", text => Endpoint.parse(text).toString),
    isCommon = true
  )

  val token: ConfigEntry[String] = ConfigEntry(
    prefix + "token",
    s"Bearer token for the $noun. Spark redacts it in its UI and logs. Set it only where no file can be mounted; " +
      "otherwise use `tokenFile`.",
    Values.text
  )

  val tokenFile: ConfigEntry[String] = ConfigEntry(
    peer.tokenFileSetting,
    s"File with the bearer token for the $noun, on the driver and on each executor. Every call reads it, so you can " +
      s"replace the token without a restart: rename a new file to it. A $unit whose token is refused before any work " +
      "was done tries once more if the file has another token by then. Open exchanges go on.",
    Values.path,
    isCommon = true
  )

  val tlsCaFile: ConfigEntry[String] = ConfigEntry(
    peer.tlsCaFileSetting,
    s"PEM file with the authorities that sign the $noun's certificate. Set it when they are your own. Not set: the " +
      "authorities of the JVM.",
    Values.path,
    isCommon = true
  )

  val tlsCertificateFile: ConfigEntry[String] = ConfigEntry(
    peer.tlsCertificateFileSetting,
    s"PEM file with the client's certificate chain. Set it, with `tls.keyFile`, when the $noun asks for client " +
      "certificates (mutual TLS).",
    Values.path
  )

  val tlsKeyFile: ConfigEntry[String] = ConfigEntry(
    peer.tlsKeyFileSetting,
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
    prefix + "connectTimeout",
    s"Give up on a connection to the $noun that is not established within this time. Raise it on slow networks.$unreachable",
    Values.milliseconds(least = 1),
    Some("10s")
  )

  val acquireTimeout: ConfigEntry[Long] = ConfigEntry(
    prefix + "acquireTimeout",
    s"Fail a task that the $noun has turned away for this long, because it was full, restarting or not ready. Until " +
      s"then the task retries, with growing waits; no work has begun, so none is lost. Raise it if the $noun needs " +
      s"longer to scale up.$queued A name that does not resolve fails after `connectTimeout`, unless the $noun has " +
      "answered this JVM before.",
    Values.milliseconds(least = 0),
    Some("10min")
  )

  /** Return the settings declared here, except the endpoint, in the order of the reference page. */
  protected def connectionEntries: Seq[ConfigEntry[_]] =
    Seq(token, tokenFile, tlsCaFile, tlsCertificateFile, tlsKeyFile, tenant) :+
      connectTimeout :+ acquireTimeout

  /** Return the values of these settings, with the limits of an exchange, which pools and writers
    * define separately.
    */
  protected def connection(
      address: String,
      lookup: String => Option[String],
      limits: ExchangeLimits
  ): ConnectionSettings =
    ConnectionSettings(
      peer = peer,
      endpoint = address,
      token = token.read(lookup),
      tokenFile = tokenFile.read(lookup),
      tlsCaFile = tlsCaFile.read(lookup),
      tlsCertificateFile = tlsCertificateFile.read(lookup),
      tlsKeyFile = tlsKeyFile.read(lookup),
      tenant = tenant.read(lookup),
      connectTimeoutMilliseconds = connectTimeout.require(lookup),
      acquireTimeoutMilliseconds = acquireTimeout.require(lookup),
      limits = limits,
      traceEndpoint = TraceConf.endpoint.read(lookup)
    )
}
