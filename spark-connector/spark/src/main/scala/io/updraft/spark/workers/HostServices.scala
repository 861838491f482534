// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.workers

import java.io.IOException
import java.nio.ByteBuffer
import java.nio.charset.StandardCharsets.UTF_8

import scala.collection.mutable
import scala.util.control.NonFatal

import org.apache.spark.internal.Logging

/** Services of this process that a worker on the pool calls: barrier stages and the state of
  * streams. A worker may only connect to services that Spark announced to this worker.
  *
  * @param known
  *   services with their secrets, by port or path
  */
private[workers] final class HostServices(
    process: LaunchedProcess,
    known: Map[String, Option[String]]
) extends AutoCloseable with Logging {
  private val secrets = mutable.Map(known.toSeq: _*)
  private val connections = mutable.Map.empty[Int, LoopbackConnection]
  private var isClosed = false

  /** Number of the last connection that the worker has opened. */
  private var opened = 0

  /** Let the worker call one more service, which asks for no secret. */
  def add(address: String): Unit = synchronized(secrets.update(address, None))

  /** Take a piece from the worker. The first piece of a connection is the address of a service, and
    * an empty piece closes the connection. Raise an IOException for anything that Spark did not
    * announce to this worker.
    *
    * @param answer
    *   sends bytes from the service to the worker; returns false once nothing can be sent
    */
  def accept(number: Int, data: ByteBuffer)(answer: ByteBuffer => Boolean): Unit =
    synchronized(connections.get(number)) match {
      case Some(connection) =>
        if (data.hasRemaining) connection.write(data) else end(number, connection)
      case None if number == opened + 1 && data.hasRemaining =>
        open(number, UTF_8.decode(data).toString, answer)
      case None if number <= opened => // The service has closed the connection, too.
      case None =>
        throw new IOException(s"the worker wrote to connection $number without opening it")
    }

  private def open(number: Int, address: String, answer: ByteBuffer => Boolean): Unit = {
    val secret = synchronized(secrets.getOrElse(
      address,
      throw new IOException(
        s"the worker asked to connect to $address, which Spark did not announce to it"
      )
    ))
    if (synchronized(connections.size) >= HostServices.MostConnections) {
      throw new IOException(
        s"the worker keeps ${HostServices.MostConnections} connections to Spark open, and asked for another one"
      )
    }
    val connection = connect(address, secret)
    opened = number
    val isOpen = synchronized {
      if (!isClosed) connections.update(number, connection)
      !isClosed
    }
    if (isOpen)
      DaemonThread.start("updraft-worker-service")(forward(number, connection, answer)): Unit
    else connection.close()
  }

  private def connect(address: String, secret: Option[String]): LoopbackConnection = {
    val channel = Handshake.connect(process, address)
    try {
      secret.foreach(new Handshake(channel).authenticate)
      new LoopbackConnection(channel)
    } catch {
      case NonFatal(e) =>
        channel.close()
        throw e
    }
  }

  /** Send what a service writes to the worker, and then the end of its stream. */
  private def forward(
      number: Int,
      from: LoopbackConnection,
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
    } finally {
      end(number, from)
      answer(ByteBuffer.allocate(0)): Unit
    }
  }

  private def end(number: Int, connection: LoopbackConnection): Unit = {
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

  /** Most connections of one worker that are open at once. PySpark opens one at a time. */
  private val MostConnections = 8
}
