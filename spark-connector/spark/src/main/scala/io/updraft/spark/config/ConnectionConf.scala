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
    s"Address of the $noun: `grpc://host:port`, `grpc+tls://host:port` or `grpc+unix:///path`. $idle",
    "URI",
    None,
    text => Endpoint.parse(text).toString
  )

  val token: ConfigEntry[String] = ConfigEntry(
    prefix + "token",
    s"Bearer token for the $noun. Spark redacts it in its UI and logs. Prefer `tokenFile`.",
    "text",
    None,
    identity
  )

  val tokenFile: ConfigEntry[String] = ConfigEntry(
    peer.tokenFileSetting,
    s"File with the bearer token, on the driver and on each executor. It is read for each $unit, so you can replace " +
      "the token without a restart.",
    "path",
    None,
    identity
  )

  val tlsCaFile: ConfigEntry[String] = ConfigEntry(
    peer.tlsCaFileSetting,
    s"PEM file with the authorities that sign the $noun's certificate. Not set: the JVM's own.",
    "path",
    None,
    identity
  )

  val tlsCertificateFile: ConfigEntry[String] = ConfigEntry(
    peer.tlsCertificateFileSetting,
    "PEM file with the client's certificate chain, for mutual TLS. Requires `tls.keyFile`.",
    "path",
    None,
    identity
  )

  val tlsKeyFile: ConfigEntry[String] = ConfigEntry(
    peer.tlsKeyFileSetting,
    "PEM file with the private key of `tls.certificateFile`, in PKCS 8.",
    "path",
    None,
    identity
  )

  val tenant: ConfigEntry[String] = ConfigEntry(
    prefix + "tenant",
    s"Tenant used for fair scheduling at the $noun. Not set: each application is its own tenant.",
    "text",
    None,
    identity
  )

  val connectTimeout: ConfigEntry[Long] = ConfigEntry(
    prefix + "connectTimeout",
    s"Give up on a connection to the $noun that is not established within this time.",
    "duration",
    Some("10s"),
    Values.milliseconds(least = 1)
  )

  val acquireTimeout: ConfigEntry[Long] = ConfigEntry(
    prefix + "acquireTimeout",
    s"Fail a task when the $noun has been full, restarting or not ready for this long. Until then the task retries, " +
      "with growing waits; no work has begun, so none is lost. A name that does not resolve fails after " +
      "`connectTimeout`.",
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
