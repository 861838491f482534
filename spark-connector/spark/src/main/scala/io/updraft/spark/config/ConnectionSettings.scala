// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.config

import java.nio.file.Path
import java.time.Duration
import java.util.Optional
import java.util.concurrent.TimeUnit

import scala.jdk.OptionConverters._

import io.updraft.client.{ClientOptions, Endpoint, Peer, TlsFiles}

/** Time limit for retries, and the setting that controls it, if there is one. */
final case class Limit(milliseconds: Long, setting: Option[String]) {
  override def toString: String =
    s"${milliseconds / 1000.0} s${setting.fold("")(name => s" ($name)")}"
}

/** Limits of one exchange.
  *
  * @param replyTimeoutMilliseconds
  *   longest wait without progress; 0 means no limit
  * @param deadlineMilliseconds
  *   longest duration; 0 means no limit
  * @param windowBytes
  *   bytes of batches in flight
  */
final case class ExchangeLimits(
    replyTimeoutMilliseconds: Long,
    deadlineMilliseconds: Long,
    windowBytes: Long
)

/** Values of [[ConnectionConf]]: how to reach a pool or a writer, and the limits of an exchange.
  * Sent to the executors.
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
    limits: ExchangeLimits,
    traceEndpoint: Option[String]
) {

  /** Return the client's options on this machine. */
  def clientOptions(): ClientOptions.Builder = {
    val builder = ClientOptions
      .builder(Endpoint.parse(endpoint))
      .peer(peer)
      .connectTimeout(Duration.ofMillis(connectTimeoutMilliseconds))
      .acquireTimeout(Duration.ofMillis(acquireTimeoutMilliseconds))
      .tls(new TlsFiles(path(tlsCaFile), path(tlsCertificateFile), path(tlsKeyFile)))
      .replyTimeout(Duration.ofMillis(limits.replyTimeoutMilliseconds))
      .deadline(Duration.ofMillis(limits.deadlineMilliseconds))
      .windowBytes(limits.windowBytes)
    token.foreach(builder.token)
    tokenFile.map(Path.of(_)).foreach(builder.tokenFile)
    tenant.foreach(builder.tenant)
    builder
  }

  private def path(file: Option[String]): Optional[Path] = file.map(Path.of(_)).toJava

  /** Return the client's options for questions that the driver asks while it plans a query. */
  def planningOptions(): ClientOptions.Builder =
    clientOptions().connectTimeout(Duration.ofMillis(planningLimit.milliseconds))

  /** Return how long the driver tries to reach a peer while it plans a query. */
  def planningLimit: Limit =
    if (connectTimeoutMilliseconds <= ConnectionSettings.PlanningMilliseconds) connectLimit
    else Limit(ConnectionSettings.PlanningMilliseconds, None)

  /** Return how long the driver waits for a peer that has not answered yet. The wait is short if
    * the peer's name has no address, because then it is not about to start.
    */
  def startLimit: Limit =
    if (Endpoint.parse(endpoint).hasAddress()) connectLimit else planningLimit

  /** Return the connect timeout. */
  def connectLimit: Limit = Limit(connectTimeoutMilliseconds, Some(peer.connectTimeoutSetting))

  /** Return the limit for a peer that has answered before: it is probably restarting, so the driver
    * waits as long as tasks do.
    */
  def restartLimit: Limit =
    if (acquireTimeoutMilliseconds > connectTimeoutMilliseconds)
      Limit(acquireTimeoutMilliseconds, Some(peer.acquireTimeoutSetting))
    else connectLimit

  /** Retry until `settles` accepts a result or the connect timeout ends; return the last result. */
  def whileConnecting[A](settles: A => Boolean)(tryOnce: => A): A =
    within[A](connectLimit)(settles)(tryOnce)

  /** Retry like [[whileConnecting]], but within another limit, which may become shorter meanwhile.
    */
  def within[A](limit: => Limit)(settles: A => Boolean)(tryOnce: => A): A = {
    val began = System.nanoTime()
    def mayTry =
      System.nanoTime() - began < TimeUnit.MILLISECONDS.toNanos(limit.milliseconds)
    var result = tryOnce
    while (!settles(result) && mayTry) {
      Thread.sleep(ConnectionSettings.PauseMilliseconds)
      result = tryOnce
    }
    result
  }

  /** Return a text without the token, because logs and plans print case classes. */
  override def toString: String = s"ConnectionSettings($endpoint)"
}

object ConnectionSettings {

  /** Time after which the driver gives up on a pool while it plans: a query that may run without
    * its pool does so, and any other query fails unless the pool may still start.
    */
  private[spark] val PlanningMilliseconds = 3000L

  /** Pause before another try; short, because a killed process is usually back soon. */
  private val PauseMilliseconds = 100L
}
