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

/** Daemon that Spark connects to for each new worker.
  *
  * Spark watches and kills workers by their process ids, so an idle process represents each worker.
  *
  * @param announcement
  *   stream on which Spark reads the daemon's address, then its workers' log lines
  */
private[workers] final class WorkerDaemon(
    process: LaunchedProcess,
    announcement: OutputStream,
    layout: StreamLayout
) extends LaunchedWork with Logging {
  private val logs = new LogLines(announcement)
  private val workers = new ConcurrentHashMap[Long, WorkerTunnel]()
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
    try while (listener.isOpen) accept()
    finally close()
  }

  private def accept(): Unit =
    try {
      val channel = listener.accept()
      DaemonThread.start("updraft-worker")(serve(channel)): Unit
    } catch {
      case _: ClosedChannelException =>
      case e @ (_: IOException | _: OutOfMemoryError) =>
        logWarning("Spark cannot connect to the daemon of its Python workers", e)
        Thread.sleep(WorkerDaemon.PauseMilliseconds)
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

  private def serve(channel: SocketChannel): Unit =
    try {
      val idle = WorkerDaemon.idleProcess()
      try tunnel(channel, idle)
      catch {
        case e: IOException => logDebug(s"a connection of Spark to the daemon has ended: $e")
      } finally idle.destroyForcibly(): Unit
    } catch {
      case NonFatal(e) =>
        logWarning("A Python worker of Spark could not be started on the pool", e)
    } finally channel.close()

  private def tunnel(channel: SocketChannel, idle: Process): Unit = {
    Handshake.limited(channel) { handshake =>
      handshake.introduce(idle.pid())
      if (socket.isEmpty) handshake.check(process.secret)
    }
    val tunnel =
      new WorkerTunnel(new LoopbackConnection(channel), idle.pid(), process, logs, layout)
    workers.put(idle.pid(), tunnel): Unit
    if (!listener.isOpen) tunnel.kill()
    idle.onExit().thenRun(() => tunnel.kill())
    try tunnel.run()
    finally workers.remove(idle.pid()): Unit
  }

  /** Kill the worker with this process id, as Spark's daemon does. */
  override def kill(pid: Int): Unit = Option(workers.get(pid.toLong)).foreach(_.kill())

  override def close(): Unit = {
    listener.close()
    socket.foreach(_.delete())
    workers.values().asScala.foreach(_.kill())
  }
}

private[workers] object WorkerDaemon {
  private val Backlog = 1024

  /** Pause after a connection could not be accepted, for example because too many files are open.
    */
  private val PauseMilliseconds = 100L

  /** Start a process that waits for the end of its input. The input ends when this JVM ends. */
  private def idleProcess(): Process = new ProcessBuilder("cat")
    .redirectOutput(ProcessBuilder.Redirect.DISCARD)
    .redirectError(ProcessBuilder.Redirect.DISCARD)
    .start()
}
