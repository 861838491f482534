// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.workers

import java.io.{BufferedInputStream, DataInputStream, IOException, RandomAccessFile}
import java.net.{InetAddress, ServerSocket, Socket}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.Files
import java.util.UUID

import scala.util.control.NonFatal

import org.apache.spark.SPARK_VERSION
import org.apache.spark.internal.Logging

/** Listener for the processes that Spark starts in place of Python (`updraft-python`).
  *
  * A process finds the listener through a file that this JVM keeps open. The file is already
  * deleted, so only a process that may read this JVM's entry in /proc finds the port and the
  * secret.
  */
private[workers] final class ProcessListener(layout: StreamLayout) extends Logging {
  private val secret = UUID.randomUUID().toString
  private val listener =
    new ServerSocket(0, ProcessListener.Backlog, InetAddress.getByName("127.0.0.1"))

  /** Deleted file with the port and the secret of this listener. It must stay open, because
    * `updraft-python` finds it in /proc.
    */
  val note: RandomAccessFile = announce()

  DaemonThread.start("updraft-python")(while (true) accept())

  private def announce(): RandomAccessFile = {
    val path = Files.createTempFile(ProcessListener.FilePrefix, "")
    val file = new RandomAccessFile(path.toFile, "rw")
    try file.write(s"${listener.getLocalPort} $secret\n".getBytes(UTF_8))
    finally Files.delete(path)
    file
  }

  private def accept(): Unit =
    try {
      val socket = listener.accept()
      DaemonThread.start("updraft-python-process")(serve(socket)): Unit
    } catch {
      case e @ (_: IOException | _: OutOfMemoryError) =>
        logWarning("A process that Spark has started for Python cannot connect", e)
        Thread.sleep(ProcessListener.PauseMilliseconds)
    }

  private def serve(socket: Socket): Unit =
    try {
      socket.setSoTimeout(ProcessListener.HandshakeMilliseconds)
      val in = new DataInputStream(new BufferedInputStream(socket.getInputStream))
      val process = LaunchedProcess.read(in, secret)
      socket.setSoTimeout(0)
      if (process.asksForVersion)
        socket.getOutputStream.write(s"${WorkerRequests.poolPython()}\n".getBytes(UTF_8))
      else run(process, in, socket)
    } catch {
      case NonFatal(e) =>
        logWarning("A Python worker of Spark could not be started on the pool", e)
    } finally socket.close()

  private def run(process: LaunchedProcess, in: DataInputStream, socket: Socket): Unit = {
    val work = process.runnerAddress match {
      case Some(address) =>
        new SimpleWorker(process, address, new LogLines(socket.getOutputStream), layout)
      case None => new WorkerDaemon(process, socket.getOutputStream, layout)
    }
    DaemonThread.start("updraft-python-kills") {
      try readKills(in, work)
      catch { case e: IOException => logDebug(s"Spark has ended process ${process.pid}: $e") }
      finally work.close()
    }: Unit
    work.run()
  }

  /** Read the process ids of the workers that Spark kills, until Spark ends the launched process.
    */
  private def readKills(pids: DataInputStream, work: LaunchedWork): Unit =
    while (true) work.kill(pids.readInt())
}

private[spark] object ProcessListener {

  /** Prefix of the file's name, by which `updraft-python` recognizes it. */
  private val FilePrefix = "updraft-python-"

  private val Backlog = 1024
  private val HandshakeMilliseconds = 10000

  /** Pause after a connection could not be accepted, for example because too many files are open.
    */
  private val PauseMilliseconds = 100L

  private lazy val running = new ProcessListener(
    StreamLayout.of(SPARK_VERSION).getOrElse(
      throw new UnsupportedOperationException(
        s"Python workers of Spark $SPARK_VERSION cannot run on a pool: use Spark 4.0 or newer, or " +
          "leave WorkerPlugin out of spark.plugins"
      )
    )
  )

  /** Start the listener of this JVM, which runs until the JVM ends. Idempotent. Raise an error if
    * the workers of this Spark version cannot run on a pool.
    */
  def start(): Unit = running: Unit
}
