// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.config

import java.time.Duration
import java.util.concurrent.TimeUnit

import io.updraft.client.{ClientOptions, Peer}

/** Time limit for retries, and the setting that controls the limit; None if no setting does. */
final case class Limit(milliseconds: Long, setting: Option[String]) {
  override def toString: String =
    s"${milliseconds / 1000.0} s${setting.fold("")(name => s" ($name)")}"
}

/** Values of [[ConnectionConf]]: how to reach a service and how long to wait for it. Sent to the
  * executors.
  *
  * @param traceEndpoint
  *   address of the collector of traces
  */
final case class ConnectionSettings(options: ClientOptions, traceEndpoint: Option[String]) {
  import options.{acquireTimeout, connectTimeout, peer}

  def endpoint: String = options.endpoint.toString

  /** Return the tenant; None if the application is the tenant. */
  def tenant: Option[String] = Option(options.tenant).filter(_.nonEmpty)

  /** Return the client's options for questions that the driver asks while it plans a query. */
  def planningOptions: ClientOptions =
    options.changed(_.connectTimeout = Duration.ofMillis(planningLimit.milliseconds))

  /** Return how long the driver tries to reach a peer while it plans a query. */
  def planningLimit: Limit =
    if (connectTimeout.toMillis <= ConnectionSettings.PlanningMilliseconds) connectLimit
    else Limit(ConnectionSettings.PlanningMilliseconds, None)

  /** Return how long the driver waits for a peer that has not answered yet. The wait is short if
    * the peer's name has no address, because such a peer will probably not start soon.
    */
  def startLimit: Limit =
    if (options.endpoint.hasAddress()) connectLimit else planningLimit

  /** Return the connect timeout. */
  def connectLimit: Limit =
    Limit(connectTimeout.toMillis, Some(peer.setting(Peer.Setting.CONNECT_TIMEOUT)))

  /** Return the limit for a peer that has answered before. Such a peer is probably restarting, so
    * the driver waits as long as tasks do.
    */
  def restartLimit: Limit =
    if (acquireTimeout.compareTo(connectTimeout) > 0)
      Limit(acquireTimeout.toMillis, Some(peer.setting(Peer.Setting.ACQUIRE_TIMEOUT)))
    else connectLimit

  /** Retry until `settles` accepts a result or the connect timeout has passed. Return the last
    * result, accepted or not.
    */
  def whileConnecting[A](settles: A => Boolean)(tryOnce: => A): A =
    within[A](connectLimit)(settles)(tryOnce)

  /** Retry like [[whileConnecting]], but within another limit. Each retry evaluates `limit` anew,
    * because the limit may become shorter between retries.
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
}

object ConnectionSettings {

  /** Time after which the driver gives up on a pool while it plans a query. A query that can run
    * without its pool then falls back. Any other query fails, unless the pool may still start.
    */
  private[spark] val PlanningMilliseconds = 3000L

  /** Pause before the next try. The pause is short, because a killed process is usually back soon.
    */
  private val PauseMilliseconds = 100L
}
