// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.config

import io.updraft.client.{Endpoint, Peer}

/** The settings that say how to reach a pool or a writer: the same for both, under two prefixes.
  *
  * @param noun
  *   what is reached
  * @param unit
  *   what one call serves
  */
private[config] final class ConnectionConf(peer: Peer, noun: String, unit: String, idle: String) {
  private val prefix = peer.endpointSetting.stripSuffix("endpoint")

  val endpoint: ConfigEntry[String] = ConfigEntry(
    peer.endpointSetting,
    s"Where the $noun listens: `grpc://host:port`, `grpc+tls://host:port` or `grpc+unix:///path`. $idle",
    "URI",
    None,
    text => Endpoint.parse(text).toString
  )

  val token: ConfigEntry[String] = ConfigEntry(
    prefix + "token",
    s"Bearer token for the $noun. Spark redacts it in its UI and logs; prefer `tokenFile`.",
    "text",
    None,
    identity
  )

  val tokenFile: ConfigEntry[String] = ConfigEntry(
    peer.tokenFileSetting,
    s"File on the driver and on each executor that holds the bearer token; read for each $unit, so that a token " +
      "can be replaced without a restart.",
    "path",
    None,
    identity
  )

  val tlsCaFile: ConfigEntry[String] = ConfigEntry(
    peer.tlsCaFileSetting,
    s"PEM file with the authorities that sign the $noun's certificate. Not set: those of the JVM.",
    "path",
    None,
    identity
  )

  val tlsCertificateFile: ConfigEntry[String] = ConfigEntry(
    peer.tlsCertificateFileSetting,
    "PEM file with the client's certificate chain, for mutual TLS; needs `tls.keyFile` too.",
    "path",
    None,
    identity
  )

  val tlsKeyFile: ConfigEntry[String] = ConfigEntry(
    peer.tlsKeyFileSetting,
    "PEM file with the private key of `tls.certificateFile`, PKCS 8.",
    "path",
    None,
    identity
  )

  val tenant: ConfigEntry[String] = ConfigEntry(
    prefix + "tenant",
    s"Whose share of the $noun a task takes. Not set: that of the application.",
    "text",
    None,
    identity
  )

  val connectTimeout: ConfigEntry[Long] = ConfigEntry(
    prefix + "connectTimeout",
    s"How long a connection to the $noun may take to be made.",
    "duration",
    Some("10s"),
    Values.milliseconds(least = 1)
  )

  val acquireTimeout: ConfigEntry[Long] = ConfigEntry(
    prefix + "acquireTimeout",
    s"How long a task keeps asking while the $noun is full, restarting or not ready, with growing waits. No work has " +
      "begun by then, so none is lost. A name that does not resolve is given up after `connectTimeout`.",
    "duration",
    Some("10min"),
    Values.milliseconds(least = 0)
  )

  /** The entries that say who this client is. */
  val identityEntries: Seq[ConfigEntry[_]] =
    Seq(token, tokenFile, tlsCaFile, tlsCertificateFile, tlsKeyFile, tenant)

  def settings(address: String, lookup: String => Option[String]): ConnectionSettings =
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
      traceEndpoint = TraceConf.endpoint.read(lookup)
    )
}
