// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.config

import java.nio.file.Path
import java.time.Duration
import java.util.Optional
import java.util.concurrent.TimeUnit

import scala.jdk.OptionConverters._

import io.updraft.client.{ClientOptions, Endpoint, Peer, TlsFiles}

/** How to reach a pool or a writer and the limits of an exchange, as [[ConnectionConf]] says;
  * travels to the executors.
  */
final case class ConnectionSettings(
    peer: Peer,
    endpoint: String,
    token: Option[String],
    tokenFile: Option[String],
    tlsCaFile: Option[String],
    tlsCertificateFile: Option[String],
    tlsKeyFile: Option[String],
    tenant: Option[String],
    connectTimeoutMilliseconds: Long,
    acquireTimeoutMilliseconds: Long,
    replyTimeoutMilliseconds: Long,
    deadlineMilliseconds: Long,
    windowBytes: Long,
    maxMessageBytes: Long,
    maxBatchBytes: Long,
    traceEndpoint: Option[String]
) {

  /** The client's options on this machine. */
  def clientOptions(): ClientOptions.Builder = {
    val builder = ClientOptions
      .builder(Endpoint.parse(endpoint))
      .peer(peer)
      .connectTimeout(Duration.ofMillis(connectTimeoutMilliseconds))
      .acquireTimeout(Duration.ofMillis(acquireTimeoutMilliseconds))
      .tls(new TlsFiles(path(tlsCaFile), path(tlsCertificateFile), path(tlsKeyFile)))
      .replyTimeout(Duration.ofMillis(replyTimeoutMilliseconds))
      .deadline(Duration.ofMillis(deadlineMilliseconds))
      .windowBytes(windowBytes)
      .maxMessageBytes(maxMessageBytes.toInt)
      .maxBatchBytes(maxBatchBytes.toInt)
    token.foreach(builder.token)
    tokenFile.map(Path.of(_)).foreach(builder.tokenFile)
    tenant.foreach(builder.tenant)
    builder
  }

  private def path(file: Option[String]): Optional[Path] = file.map(Path.of(_)).toJava

  /** Tries until a result settles it or the connect timeout has passed; returns the last result. */
  def whileConnecting[A](settles: A => Boolean)(tryOnce: => A): A =
    within(connectTimeoutMilliseconds)(settles)(tryOnce)

  /** The same for a peer that has answered before: it most likely restarts, and is waited for as
    * tasks wait for it.
    */
  def whileRestarting[A](settles: A => Boolean)(tryOnce: => A): A =
    within(restartMilliseconds)(settles)(tryOnce)

  /** For how long [[whileConnecting]] tries, and the setting that says so. */
  def connectLimit: String = limit(connectTimeoutMilliseconds, peer.connectTimeoutSetting)

  /** For how long [[whileRestarting]] tries, and the setting that says so. */
  def restartLimit: String =
    if (acquireTimeoutMilliseconds > connectTimeoutMilliseconds)
      limit(acquireTimeoutMilliseconds, peer.acquireTimeoutSetting)
    else connectLimit

  private def limit(milliseconds: Long, setting: String) = s"${milliseconds / 1000.0} s ($setting)"

  private def restartMilliseconds = math.max(connectTimeoutMilliseconds, acquireTimeoutMilliseconds)

  private def within[A](milliseconds: Long)(settles: A => Boolean)(tryOnce: => A): A = {
    val deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(milliseconds)
    var result = tryOnce
    while (!settles(result) && System.nanoTime() < deadline) {
      Thread.sleep(ConnectionSettings.PauseMilliseconds)
      result = tryOnce
    }
    result
  }

  /** Without the token: case classes are printed in logs and plans. */
  override def toString: String = s"ConnectionSettings($endpoint)"
}

object ConnectionSettings {

  /** Before another try: a process that was killed is back soon. */
  private val PauseMilliseconds = 100L
}
