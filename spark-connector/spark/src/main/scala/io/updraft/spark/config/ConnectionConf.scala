// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.config

import io.updraft.client.{Endpoint, Peer}

/** Settings shared by pools and writers, under two prefixes: how to reach the service, and the
  * limits of an exchange.
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
    Values("URI", text => Endpoint.parse(text).toString)
  )

  val token: ConfigEntry[String] = ConfigEntry(
    prefix + "token",
    s"Bearer token for the $noun. Spark redacts it in its UI and logs. Prefer `tokenFile`.",
    Values.text
  )

  val tokenFile: ConfigEntry[String] = ConfigEntry(
    peer.tokenFileSetting,
    s"File with the bearer token, on the driver and on each executor. Every call to the $noun reads it, so you can " +
      s"replace the token without a restart: rename a new file to it. A $unit whose token is refused before any work " +
      "was done tries once more, if the file has another token by then; an exchange that is open goes on.",
    Values.path
  )

  val tlsCaFile: ConfigEntry[String] = ConfigEntry(
    peer.tlsCaFileSetting,
    s"PEM file with the authorities that sign the $noun's certificate. Not set: the JVM's own.",
    Values.path
  )

  val tlsCertificateFile: ConfigEntry[String] = ConfigEntry(
    peer.tlsCertificateFileSetting,
    "PEM file with the client's certificate chain, for mutual TLS. Requires `tls.keyFile`.",
    Values.path
  )

  val tlsKeyFile: ConfigEntry[String] = ConfigEntry(
    peer.tlsKeyFileSetting,
    "PEM file with the private key of `tls.certificateFile`, in PKCS 8.",
    Values.path
  )

  val tenant: ConfigEntry[String] = ConfigEntry(
    prefix + "tenant",
    s"Tenant used for fair scheduling at the $noun. Not set: each application is its own tenant.",
    Values.text
  )

  val connectTimeout: ConfigEntry[Long] = ConfigEntry(
    prefix + "connectTimeout",
    s"Give up on a connection to the $noun that is not established within this time.$unreachable",
    Values.milliseconds(least = 1),
    Some("10s")
  )

  val acquireTimeout: ConfigEntry[Long] = ConfigEntry(
    prefix + "acquireTimeout",
    s"Fail a task that the $noun has turned away for this long, because it was full, restarting or not ready. Until " +
      s"then the task retries, with growing waits; no work has begun, so none is lost.$queued A name that does not " +
      s"resolve fails after `connectTimeout`, unless the $noun has answered this JVM before.",
    Values.milliseconds(least = 0),
    Some("10min")
  )

  def replyTimeout: ConfigEntry[Long]

  val deadline: ConfigEntry[Long] = ConfigEntry(
    prefix + "deadline",
    s"Maximum duration of a $unit's exchange with the $noun. 0: no limit.",
    Values.milliseconds(least = 0),
    Some("0s")
  )

  def windowBytes: ConfigEntry[Long]

  val maxMessageBytes: ConfigEntry[Long] = ConfigEntry(
    prefix + "maxMessageBytes",
    s"Maximum size of one message, in either direction. The $noun has its own limit. Larger batches come in parts.",
    Values.bytes(least = 1L << 20, most = Int.MaxValue.toLong),
    Some("256m")
  )

  val maxBatchBytes: ConfigEntry[Long] = ConfigEntry(
    peer.maxBatchBytesSetting,
    "Maximum size of one batch, in either direction. Batches are cut far below it; only a single row can be as large. " +
      s"The $noun has its own limit.",
    Values.bytes(least = 1L << 20, most = Int.MaxValue.toLong),
    Some("1g")
  )

  /** Return the settings declared here, except the endpoint, in the order of the reference page. */
  protected def connectionEntries: Seq[ConfigEntry[_]] =
    Seq(token, tokenFile, tlsCaFile, tlsCertificateFile, tlsKeyFile, tenant) ++
      Seq(connectTimeout, acquireTimeout, replyTimeout, deadline, windowBytes, maxMessageBytes) :+
      maxBatchBytes

  protected def connection(
      address: String,
      lookup: String => Option[String]
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
      replyTimeoutMilliseconds = replyTimeout.require(lookup),
      deadlineMilliseconds = deadline.require(lookup),
      windowBytes = windowBytes.require(lookup),
      maxMessageBytes = maxMessageBytes.require(lookup),
      maxBatchBytes = maxBatchBytes.require(lookup),
      traceEndpoint = TraceConf.endpoint.read(lookup)
    )
}
