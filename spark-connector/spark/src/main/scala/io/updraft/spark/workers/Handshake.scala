// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.workers

import java.io.{DataInputStream, DataOutputStream, IOException}
import java.net.{InetAddress, InetSocketAddress, UnixDomainSocketAddress}
import java.nio.channels.{Channels, SocketChannel}
import java.nio.charset.StandardCharsets.UTF_8
import java.util.concurrent.Executors
import java.util.concurrent.TimeUnit.MILLISECONDS

import scala.concurrent.duration._
import scala.util.control.NonFatal

/** First messages between Spark and a worker, before the stream of the first task. The channel is
  * still blocking.
  */
private[workers] final class Handshake(channel: SocketChannel) {
  private val in = new DataInputStream(Channels.newInputStream(channel))
  private val out = new DataOutputStream(Channels.newOutputStream(channel))

  /** Send the worker's process id to Spark. */
  def introduce(pid: Long): Unit = {
    out.writeInt(pid.toInt)
    out.flush()
  }

  /** Send the secret to Spark, as the side that connects. */
  def authenticate(secret: String): Unit = {
    write(secret)
    if (read() != Handshake.Accepted) throw new IOException("Spark has refused the worker's secret")
  }

  /** Check the secret of the side that has connected; raise an IOException if it is wrong. */
  def check(secret: String): Unit = {
    val isRight = read() == secret
    write(if (isRight) Handshake.Accepted else "err")
    if (!isRight) throw new IOException("a process without Spark's secret has connected")
  }

  private def write(text: String): Unit = {
    val bytes = text.getBytes(UTF_8)
    out.writeInt(bytes.length)
    out.write(bytes)
    out.flush()
  }

  private def read(): String = {
    val length = in.readInt()
    if (length < 0 || length > Handshake.MostBytes)
      throw new IOException(s"the secret has $length bytes, the limit is ${Handshake.MostBytes}")
    new String(in.readNBytes(length), UTF_8)
  }
}

private[workers] object Handshake {
  private val Accepted = "ok"
  private val MostBytes = 4096

  /** Limit on the time of a handshake. Both sides are on one machine, so a slower handshake means
    * that the other process has connected and sends nothing.
    */
  private val Limit = 10.seconds

  private lazy val timer = Executors.newSingleThreadScheduledExecutor { (work: Runnable) =>
    val thread = new Thread(work, "updraft-handshake-limit")
    thread.setDaemon(true)
    thread
  }

  /** Run a handshake. Close the channel if the handshake takes too long, so that `body` raises an
    * IOException.
    */
  def limited[T](channel: SocketChannel, limit: FiniteDuration = Limit)(body: Handshake => T): T = {
    val end = timer.schedule((() => channel.close()): Runnable, limit.toMillis, MILLISECONDS)
    try body(new Handshake(channel))
    finally end.cancel(false): Unit
  }

  /** Connect to a port, or to a path, of this process. */
  def connect(process: LaunchedProcess, address: String): SocketChannel =
    if (address.startsWith("/")) SocketChannel.open(UnixDomainSocketAddress.of(address))
    else SocketChannel.open(new InetSocketAddress(loopback(process), address.toInt))

  /** Connect to a service of this process, and send the service's secret if there is one. */
  def connect(process: LaunchedProcess, address: String, secret: Option[String]): SocketChannel = {
    val channel = connect(process, address)
    try secret.foreach(text => limited(channel)(_.authenticate(text)))
    catch {
      case NonFatal(e) =>
        channel.close()
        throw e
    }
    channel
  }

  /** Return the loopback address that Spark uses. */
  def loopback(process: LaunchedProcess): InetAddress =
    InetAddress.getByName(if (process.prefersIpv6) "::1" else "127.0.0.1")
}
