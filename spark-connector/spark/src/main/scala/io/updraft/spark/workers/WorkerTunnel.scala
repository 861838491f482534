// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.workers

import java.io.{ByteArrayOutputStream, DataOutputStream, File, IOException}
import java.nio.ByteBuffer
import java.nio.channels.ClosedSelectorException
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, NoSuchFileException}

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.sql.updraft.SparkInternals

import io.updraft.client.{Exchange, ExchangeException, Replay}
import io.updraft.proto.v1.ErrorKind

/** Tunnel from Spark's runner to workers of the pool. Spark sees the tunnel as one Python worker
  * that runs several tasks. Each task has its own worker exchange.
  *
  * @param pid
  *   id of the process that represents the worker
  */
private[workers] final class WorkerTunnel(
    runner: LoopbackConnection,
    pid: Long,
    process: LaunchedProcess,
    logs: LogLines,
    layout: StreamLayout
) extends AutoCloseable with Logging {
  private val requests = new WorkerRequests(process)
  private val firstByte = ByteBuffer.allocate(1)
  @volatile private var current: Option[WorkerExchange] = None

  /** Thread that is opening an exchange. Opening includes the upload of the exchange's artifacts.
    */
  @volatile private var opening: Option[Thread] = None
  @volatile private var isKilled = false

  /** Serve Spark until Spark hangs up. */
  def run(): Unit =
    try while (hasTask && serve()) {}
    catch {
      case e @ (_: IOException | _: ClosedSelectorException | _: InterruptedException) =>
        logDebug(s"the connection to Spark has ended: $e")
    } finally {
      requests.close()
      close()
    }

  /** End the worker, from any thread. */
  def kill(): Unit = {
    isKilled = true
    close()
    opening.foreach(_.interrupt())
    current.foreach(_.cancel(WorkerTunnel.Killed))
  }

  /** Wait for the first byte of a task. Return false if Spark has hung up. */
  private def hasTask: Boolean = {
    val count = runner.read(firstByte.clear())
    if (count > 0) runner.giveBack(firstByte.flip())
    if (count == 0) hasTask else count > 0
  }

  /** Run the worker for one task. Return whether the worker can serve another task. */
  private def serve(): Boolean = {
    val header =
      try WorkerHeader.read(process.workerModule, runner.stream(), layout)
      catch {
        case e: IOException => throw e
        case NonFatal(e) => return fail(e)
      }
    val worker =
      try {
        opening = Some(Thread.currentThread())
        val hosts = new HostServices(process, services(header))
        new WorkerExchange(open(header), runner, hosts, logs.write(pid, _))
      } catch { case NonFatal(e) => return fail(e) }
      finally {
        opening = None
        // Clear an interrupt from a `kill` that came after the exchange was opened. `isKilled` ends
        // the exchange.
        Thread.interrupted(): Unit
      }
    current = Some(worker)
    if (isKilled) worker.cancel(WorkerTunnel.Killed)
    val end =
      try worker.carry(header)
      finally {
        current = None
        worker.close()
      }
    end match {
      case WorkerEnd.Returned => true
      case WorkerEnd.HungUp => false
      case WorkerEnd.ReturnedEarly =>
        runner.end()
        false
      case WorkerEnd.Raised(e) if !worker.hasOutput => fail(e)
      case WorkerEnd.Raised(e) =>
        logInfo(s"The module ${process.workerModule} on the pool has raised an exception: $e")
        runner.end()
        false
      case WorkerEnd.Failed(e) => fail(e, worker.hasOutput)
    }
  }

  /** Report a failure to Spark and end the stream. Return false. */
  private def fail(error: Throwable, hasOutput: Boolean = false): Boolean = {
    tell(error, hasOutput)
    runner.end()
    false
  }

  private def services(header: WorkerHeader): Map[String, Option[String]] =
    header.services ++ ConnectServer.of(process).map(_.port.toString -> None)

  private def open(header: WorkerHeader): Exchange = {
    // The values travel as artifacts, but Spark kills the executor if nothing connects to the
    // server of the decrypted values.
    header.broadcasts.decryption.foreach { case (address, secret) =>
      Handshake.connect(process, address, secret).close()
    }
    val request = requests.of(header)
    Exchange.open(
      request.options,
      request.command,
      StreamBatches.schema,
      SparkInternals.allocator,
      Replay.NEVER,
      request.artifacts.asJava
    )
  }

  /** Report the failure to Spark. Before any output, send the failure as a Python exception. After
    * output, or if the worker died, make Spark report a crash: write the reason to the file in
    * which Spark looks for a traceback.
    */
  private def tell(error: Throwable, hasOutput: Boolean): Unit = {
    val reason = s"The worker on the pool failed: ${WorkerTunnel.described(error)}"
    logWarning(s"$reason (module ${process.workerModule})", error)
    if (!hasOutput && !WorkerTunnel.isDeath(error)) runner.write(WorkerTunnel.exception(reason))
    else
      process.environment.get("PYTHON_FAULTHANDLER_DIR").foreach { directory =>
        val report = s"$reason${WorkerTunnel.stack(error)}"
        Files.writeString(new File(directory, pid.toString).toPath, report): Unit
      }
  }

  override def close(): Unit = runner.close()
}

private[workers] object WorkerTunnel {

  private val Killed = "Spark has killed the worker"

  /** Mark of an exception in the stream of PySpark's worker. */
  private val ExceptionThrown = -2

  private def described(error: Throwable): String = error match {
    // This exception's message is only the path.
    case e: NoSuchFileException => s"file not found: ${e.getMessage}"
    case _ => error.getMessage
  }

  /** Return the Python stack of a crashed worker, on lines of its own. */
  private def stack(error: Throwable): String = error match {
    case e: ExchangeException =>
      e.details().map[String](_.getTraceback).filter(_.nonEmpty).map[String]("\n" + _).orElse("")
    case _ => ""
  }

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
