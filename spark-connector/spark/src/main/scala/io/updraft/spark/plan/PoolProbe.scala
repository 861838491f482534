// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.plan

import java.io.IOException
import java.net.{InetSocketAddress, Socket, StandardProtocolFamily, UnixDomainSocketAddress}
import java.nio.channels.SocketChannel
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.TimeUnit

import org.apache.spark.SparkException

import io.updraft.client.Endpoint
import io.updraft.spark.config.{UdfSettings, UpdraftConf}

/** Whether somebody listens at the endpoint, asked by the driver before a query's tasks are: one
  * clear error, or the fallback, instead of one for each task. Answers are kept for a moment, as
  * one plan asks several times.
  */
object PoolProbe {
  private val KeptNanoseconds = TimeUnit.SECONDS.toNanos(5)

  private final case class Answer(problem: Option[String], time: Long)

  private val answers = new ConcurrentHashMap[String, Answer]()
  private val answered = ConcurrentHashMap.newKeySet[String]()

  /** Why the query runs without the pool, where the session lets it; None: it runs on the pool. */
  def problem(settings: UdfSettings): Option[String] =
    if (settings.fallback == "local") ask(settings) else None

  /** Raises an error that names the endpoint and the setting when nobody listens. */
  def require(settings: UdfSettings): Unit = ask(settings).foreach { problem =>
    answers.remove(settings.endpoint)
    throw new SparkException(
      s"$problem. Set ${UpdraftConf.endpoint.key} to where the pool listens, or ${UpdraftConf.fallback.key} = " +
        "local to run the functions in Spark's own Python workers"
    )
  }

  private def ask(settings: UdfSettings): Option[String] = {
    val known = answers.get(settings.endpoint)
    if (known != null && System.nanoTime() - known.time < KeptNanoseconds) {
      known.problem
    } else {
      val problem = connect(settings)
      answers.put(settings.endpoint, Answer(problem, System.nanoTime()))
      problem
    }
  }

  /** A pool that is not there is waited for if it has been, unless the query may run without it. */
  private def connect(settings: UdfSettings): Option[String] = {
    val endpoint = Endpoint.parse(settings.endpoint)
    def once: Option[String] = tryOnce(endpoint, settings)
    val problem =
      if (settings.fallback != "local" && answered.contains(settings.endpoint))
        settings.connection.whileRestarting[Option[String]](_.isEmpty)(once)
      else settings.connection.whileConnecting[Option[String]](_.isEmpty)(once)
    if (problem.isEmpty) answered.add(settings.endpoint)
    problem
  }

  private def tryOnce(endpoint: Endpoint, settings: UdfSettings): Option[String] =
    try {
      if (endpoint.transport() == Endpoint.Transport.UNIX) connectUnix(endpoint)
      else connectNetwork(endpoint, settings.connection.connectTimeoutMilliseconds.toInt)
      None
    } catch {
      case e: IOException =>
        Some(s"no pool answers at ${settings.endpoint}: ${e.getMessage}")
    }

  private def connectNetwork(endpoint: Endpoint, timeoutMilliseconds: Int): Unit = {
    val socket = new Socket()
    try socket.connect(new InetSocketAddress(endpoint.host(), endpoint.port()), timeoutMilliseconds)
    finally socket.close()
  }

  private def connectUnix(endpoint: Endpoint): Unit = {
    val channel = SocketChannel.open(StandardProtocolFamily.UNIX)
    try channel.connect(UnixDomainSocketAddress.of(endpoint.path()))
    finally channel.close()
  }
}
