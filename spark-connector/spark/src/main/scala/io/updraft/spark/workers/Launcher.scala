// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.workers

import java.io.{BufferedInputStream, RandomAccessFile}
import java.net.{InetAddress, ServerSocket, Socket}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.Files
import java.util.UUID

import scala.util.control.NonFatal

import org.apache.spark.SPARK_VERSION
import org.apache.spark.internal.Logging

/** Listener for the processes that Spark starts in place of Python (`updraft-python`).
  *
  * A process finds the listener through a file that this JVM keeps open. The file has no name any
  * more, so only a process that may look at this JVM can read the port and the secret in it.
  */
private[workers] final class Launcher(layout: StreamLayout) extends Logging {
  private val secret = UUID.randomUUID().toString
  private val listener = new ServerSocket(0, Launcher.Backlog, InetAddress.getByName("127.0.0.1"))

  /** File in which `updraft-python` finds the listener. It must stay open. */
  val note: RandomAccessFile = announce()

  Launcher.spawn("updraft-python")(while (true) accept())

  private def announce(): RandomAccessFile = {
    val path = Files.createTempFile(Launcher.FilePrefix, "")
    val file = new RandomAccessFile(path.toFile, "rw")
    try file.write(s"${listener.getLocalPort} $secret\n".getBytes(UTF_8))
    finally Files.delete(path)
    file
  }

  private def accept(): Unit = {
    val process = listener.accept()
    Launcher.spawn("updraft-python-process") {
      try serve(process)
      catch {
        case NonFatal(e) =>
          logWarning("A Python worker of Spark could not be started on the pool", e)
      } finally process.close()
    }
  }

  private def serve(process: Socket): Unit = {
    process.setSoTimeout(Launcher.HandshakeMilliseconds)
    val launched =
      LaunchedProcess.read(new BufferedInputStream(process.getInputStream), secret)
    process.setSoTimeout(0)
    if (launched.asksForVersion)
      process.getOutputStream.write(s"${WorkerCommand.poolPython()}\n".getBytes(UTF_8))
    else
      serve(
        process,
        launched.runner match {
          case Some(address) => new SimpleWorker(launched, address, layout)
          case None => new WorkerDaemon(launched, process.getOutputStream, layout)
        }
      )
  }

  private def serve(process: Socket, work: LaunchedWork): Unit = {
    // Spark ends the process to end its workers. The process sends nothing else.
    Launcher.spawn("updraft-python-end") {
      try process.getInputStream.read(): Unit
      finally work.close()
    }
    work.run()
  }
}

private[spark] object Launcher extends Logging {

  /** Prefix of the file's name, by which `updraft-python` recognises it. */
  private val FilePrefix = "updraft-python-"

  private val Backlog = 1024
  private val HandshakeMilliseconds = 10000

  private lazy val running: Option[Launcher] = StreamLayout.of(SPARK_VERSION) match {
    case Some(layout) => Some(new Launcher(layout))
    case None =>
      logWarning(
        s"Python workers of Spark $SPARK_VERSION cannot run on a pool: use Spark 4.0 or newer"
      )
      None
  }

  /** Start the listener of this JVM, which stays until the JVM ends. Idempotent. */
  def start(): Unit = running: Unit

  /** Run `body` in a daemon thread. */
  def spawn(name: String)(body: => Unit): Thread = {
    val thread = new Thread(() => body, name)
    thread.setDaemon(true)
    thread.start()
    thread
  }
}

/** Work for one launched process. */
private[workers] trait LaunchedWork extends AutoCloseable {

  /** Serve Spark until it or the process ends. */
  def run(): Unit
}
