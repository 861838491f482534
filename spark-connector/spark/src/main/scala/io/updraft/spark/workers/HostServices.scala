// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.workers

import java.io.IOException
import java.nio.ByteBuffer
import java.nio.channels.ClosedSelectorException
import java.nio.charset.StandardCharsets.UTF_8

import scala.collection.mutable
import scala.util.control.NonFatal

import org.apache.spark.internal.Logging

/** Services of this process that a worker on the pool calls: barrier stages, the state of streams
  * and, for foreachBatch and listeners, the Spark Connect server. A worker may only connect to
  * services that Spark announced to this worker.
  *
  * @param known
  *   services with their secrets, by port or path
  */
private[workers] final class HostServices(
    process: LaunchedProcess,
    known: Map[String, Option[String]]
) extends AutoCloseable with Logging {
  private val secrets = mutable.Map(known.toSeq: _*)
  private val connections = mutable.Map.empty[Int, ServiceConnection]
  private var isClosed = false

  /** Number of connections that have a thread. */
  private var reserved = 0

  /** Number of the last connection that the worker has opened. */
  private var opened = 0

  /** Let the worker call one more service, which requires no secret. */
  def add(address: String): Unit = synchronized(secrets.update(address, None))

  /** Accept a piece of the worker's stream. The first piece of a connection is the address of a
    * service, and an empty piece closes the connection. Raise an IOException for anything that
    * Spark did not announce to this worker.
    *
    * @param answer
    *   sends bytes from the service to the worker; returns false if nothing more can be sent
    */
  def accept(number: Int, data: ByteBuffer)(answer: ByteBuffer => Boolean): Unit =
    synchronized(connections.get(number)) match {
      case Some(connection) =>
        if (!data.hasRemaining) end(number, connection)
        else
          try connection.write(data)
          catch { case HostServices.Lost(e) => lose(number, connection, e) }
      case None if number == opened + 1 && data.hasRemaining =>
        open(number, UTF_8.decode(data).toString, answer)
      case None if number <= opened => // This side has already closed the connection.
      case None =>
        throw new IOException(s"the worker wrote to connection $number without opening it")
    }

  private def open(number: Int, address: String, answer: ByteBuffer => Boolean): Unit = {
    val secret = synchronized(secrets.getOrElse(
      address,
      throw new IOException(
        s"the worker asked to connect to ${address.take(HostServices.MostShown)}, which Spark did not announce to it"
      )
    ))
    if (!reserve()) {
      throw new IOException(
        s"the worker keeps ${HostServices.MostConnections} connections to Spark open, and asked for another one"
      )
    }
    opened = number
    val connection =
      try {
        val channel = Handshake.connect(process, address, secret)
        Some(new ServiceConnection(new LoopbackConnection(channel)))
      } catch {
        case NonFatal(e) =>
          logWarning(s"A worker cannot connect to $address: $e")
          None
      }
    val isOpen = synchronized {
      if (!isClosed) connection.foreach(connections.update(number, _))
      !isClosed
    }
    if (!isOpen) connection.foreach(_.close())
    // Use another thread: an answer may have to wait for room in the exchange, and only the current
    // thread makes room.
    DaemonThread.start("updraft-worker-service")(serve(number, connection, answer)): Unit
  }

  private def serve(
      number: Int,
      connection: Option[ServiceConnection],
      answer: ByteBuffer => Boolean
  ): Unit =
    try {
      connection.foreach(forward(number, _, answer))
      answer(ByteBuffer.allocate(0)): Unit
    } finally synchronized(reserved -= 1)

  /** Reserve a thread for one more connection; return false if there are too many. The reservation
    * lasts until the thread has ended, because the thread may outlive a connection that the worker
    * closes without reading all of its bytes.
    */
  private def reserve(): Boolean = synchronized {
    val isFree = reserved < HostServices.MostConnections
    if (isFree) reserved += 1
    isFree
  }

  /** Send the service's output to the worker. */
  private def forward(
      number: Int,
      from: ServiceConnection,
      answer: ByteBuffer => Boolean
  ): Unit = {
    val buffer = ByteBuffer.allocate(HostServices.BufferBytes)
    try {
      var goesOn = true
      while (goesOn) {
        val count = from.read(buffer.clear())
        goesOn = count >= 0 && (count == 0 || answer(buffer.flip()))
      }
    } catch {
      case NonFatal(e) => logDebug(s"connection $number of a worker to Spark has ended: $e")
    } finally
      end(number, from)
  }

  /** Close a connection to which no more bytes can be written. The connection's thread then reports
    * the end to the worker.
    */
  private def lose(number: Int, connection: ServiceConnection, cause: Throwable): Unit = {
    logDebug(s"connection $number of a worker to Spark is lost: $cause")
    end(number, connection)
  }

  private def end(number: Int, connection: ServiceConnection): Unit = {
    synchronized(connections.remove(number)): Unit
    connection.close()
  }

  override def close(): Unit = {
    val left = synchronized {
      isClosed = true
      connections.values.toSeq
    }
    left.foreach(_.close())
  }
}

private object HostServices {
  private val BufferBytes = 64 << 10

  /** Maximum number of characters of a worker's text in an error. */
  private val MostShown = 100

  /** Maximum number of open connections of one worker. State and barriers need one, and each Spark
    * Connect session that a function creates may need another.
    */
  private val MostConnections = 32

  /** Extractor for errors of a connection that the other side, or another thread, has closed. */
  private object Lost {
    def unapply(error: Throwable): Option[Throwable] = error match {
      case _: IOException | _: ClosedSelectorException => Some(error)
      case _ => None
    }
  }
}
