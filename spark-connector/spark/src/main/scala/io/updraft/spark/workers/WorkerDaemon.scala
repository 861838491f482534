// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.workers

import java.io.{DataOutputStream, File, IOException, OutputStream}
import java.net.{InetSocketAddress, StandardProtocolFamily, UnixDomainSocketAddress}
import java.nio.channels.{ClosedChannelException, ServerSocketChannel, SocketChannel}
import java.nio.charset.StandardCharsets.UTF_8
import java.util.UUID
import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import org.apache.spark.internal.Logging

/** Daemon from which Spark asks workers, by connecting to it.
  *
  * Spark wants a process for each worker, which it watches and may kill. So each worker has one,
  * which only waits.
  *
  * @param announcement
  *   stream on which Spark reads the daemon's address
  */
private[workers] final class WorkerDaemon(
    process: LaunchedProcess,
    announcement: OutputStream,
    layout: StreamLayout
) extends LaunchedWork with Logging {
  private val workers = ConcurrentHashMap.newKeySet[AutoCloseable]()
  private val socket = process.socketDirectory.map(new File(_, s".${UUID.randomUUID()}.sock"))

  private val listener = socket match {
    case Some(path) =>
      ServerSocketChannel.open(StandardProtocolFamily.UNIX)
        .bind(UnixDomainSocketAddress.of(path.getPath), WorkerDaemon.Backlog)
    case None =>
      ServerSocketChannel.open()
        .bind(new InetSocketAddress(Handshake.loopback(process), 0), WorkerDaemon.Backlog)
  }

  override def run(): Unit = {
    announce()
    try
      while (true) {
        val channel = listener.accept()
        Launcher.spawn("updraft-worker")(serve(channel)): Unit
      }
    catch { case _: ClosedChannelException => }
    finally close()
  }

  private def announce(): Unit = {
    val out = new DataOutputStream(announcement)
    socket match {
      case Some(path) =>
        val bytes = path.getPath.getBytes(UTF_8)
        out.writeInt(bytes.length)
        out.write(bytes)
      case None => out.writeInt(listener.getLocalAddress.asInstanceOf[InetSocketAddress].getPort)
    }
    out.flush()
  }

  private def serve(channel: SocketChannel): Unit = {
    workers.add(channel)
    try {
      val process = WorkerDaemon.waitingProcess()
      process.onExit().thenRun(() => channel.close())
      try tunnel(channel, process.pid())
      finally process.destroyForcibly(): Unit
    } catch {
      case e: IOException => logDebug(s"a connection of Spark to the daemon has ended: $e")
      case NonFatal(e) => logWarning("A Python worker of Spark could not be started on the pool", e)
    } finally {
      channel.close()
      workers.remove(channel): Unit
    }
  }

  private def tunnel(channel: SocketChannel, pid: Long): Unit = {
    val handshake = new Handshake(channel)
    handshake.introduce(pid)
    if (socket.isEmpty) handshake.check(process.secret)
    new WorkerTunnel(new LoopbackConnection(channel), pid, process, layout).run()
  }

  override def close(): Unit = {
    listener.close()
    socket.foreach(_.delete())
    workers.asScala.foreach(_.close())
  }
}

private[workers] object WorkerDaemon {
  private val Backlog = 1024

  /** Start a process that waits for the end of its input, which comes when this JVM ends. */
  private def waitingProcess(): Process = new ProcessBuilder("cat")
    .redirectOutput(ProcessBuilder.Redirect.DISCARD)
    .redirectError(ProcessBuilder.Redirect.DISCARD)
    .start()
}
