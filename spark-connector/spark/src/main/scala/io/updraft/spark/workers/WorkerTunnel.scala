// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.workers

import java.io.{ByteArrayOutputStream, DataOutputStream, EOFException, File, IOException}
import java.nio.ByteBuffer
import java.nio.channels.ClosedSelectorException
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.Files

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.sql.updraft.SparkInternals

import io.updraft.client.{Exchange, ExchangeException, Replay}
import io.updraft.proto.v1.ErrorKind

/** Tunnel from Spark's runner to workers of the pool. Spark takes it for one Python worker, which
  * it may give one task after the other; each task has a worker exchange of its own.
  *
  * @param pid
  *   process that stands for the worker
  */
private[workers] final class WorkerTunnel(
    runner: LoopbackConnection,
    pid: Long,
    process: LaunchedProcess,
    layout: StreamLayout
) extends AutoCloseable with Logging {
  private val command = new WorkerCommand(process)
  private val startedBytes = ByteBuffer.allocate(1)

  /** Serve Spark until it hangs up. */
  def run(): Unit =
    try while (hasTask && serve()) {}
    catch {
      case e @ (_: IOException | _: ClosedSelectorException) =>
        logDebug(s"the connection to Spark has ended: $e")
    } finally close()

  /** Wait for the first byte of a task. Return false if Spark has hung up. */
  private def hasTask: Boolean = {
    val count = runner.read(startedBytes.clear())
    if (count > 0) runner.giveBack(Array(startedBytes.get(0)))
    if (count == 0) hasTask else count > 0
  }

  /** Run the worker for one task. Return whether it can serve another one. */
  private def serve(): Boolean = {
    var worker: WorkerExchange = null
    try {
      val header = WorkerHeader.read(process.workerModule, runner.stream(), layout)
      worker = new WorkerExchange(open(header), runner, new HostServices(process, header.services))
      worker.carry(header) match {
        case Some(WorkerEnd.Returned) => true
        case Some(WorkerEnd.Raised) => drained(runner.drain())
        case Some(WorkerEnd.Failed(e)) => throw e
        case None => false
      }
    } catch {
      case e: EOFException =>
        logDebug(s"Spark has hung up: $e")
        false
      case NonFatal(e) =>
        tell(e, isFirst = worker == null || !worker.hasOutput)
        drained(runner.end())
    } finally
      if (worker != null) worker.close()
  }

  private def drained(drain: => Unit): Boolean = {
    drain
    false
  }

  private def open(header: WorkerHeader): Exchange = {
    val request = command.of(header)
    Exchange.open(
      request.options,
      request.command,
      StreamBatches.schema,
      SparkInternals.allocator,
      Replay.NEVER,
      request.artifacts.asJava
    )
  }

  /** Tell Spark why the worker failed: as an exception if that is possible. Once the worker has
    * written something, it is not, and of a worker that has died Spark shall learn as of its own.
    * Then the reason goes into the file in which Spark looks for the traceback of a crash.
    */
  private def tell(error: Throwable, isFirst: Boolean): Unit = {
    val reason = s"The worker on the pool failed: ${error.getMessage}"
    logWarning(s"$reason (module ${process.workerModule})", error)
    if (isFirst && !WorkerTunnel.isDeath(error)) runner.write(WorkerTunnel.exception(reason))
    else
      process.environment.get("PYTHON_FAULTHANDLER_DIR").foreach { directory =>
        Files.writeString(new File(directory, pid.toString).toPath, reason): Unit
      }
  }

  override def close(): Unit = runner.close()
}

private[workers] object WorkerTunnel {

  /** Mark of an exception in the stream of PySpark's worker. */
  private val ExceptionThrown = -2

  private def isDeath(error: Throwable): Boolean = error match {
    case e: ExchangeException => e.kind() == ErrorKind.ERROR_KIND_WORKER
    case _ => false
  }

  private def exception(message: String): ByteBuffer = {
    val bytes = new ByteArrayOutputStream
    val out = new DataOutputStream(bytes)
    val text = message.getBytes(UTF_8)
    out.writeInt(ExceptionThrown)
    out.writeInt(text.length)
    out.write(text)
    ByteBuffer.wrap(bytes.toByteArray)
  }
}
