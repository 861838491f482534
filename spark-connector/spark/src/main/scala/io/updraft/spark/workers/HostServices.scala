// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.workers

import java.io.IOException
import java.nio.ByteBuffer
import java.nio.charset.StandardCharsets.UTF_8

import scala.collection.mutable

import org.apache.spark.internal.Logging

/** Services of this process that a worker on the pool calls: barrier stages and the state of
  * streams. A worker may only open connections to services that Spark has told this worker.
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

  /** Let the worker call one more service, which asks for no secret. */
  def add(address: String): Unit = synchronized(secrets.update(address, None))

  /** Take a piece from the worker. The first piece of a connection is the address of a service, and
    * an empty piece closes the connection.
    *
    * @param answer
    *   sends bytes from the service to the worker; returns false once nothing can be sent
    */
  def accept(number: Int, data: ByteBuffer)(answer: ByteBuffer => Boolean): Unit =
    synchronized(connections.get(number)) match {
      case Some(connection) =>
        if (data.hasRemaining) connection.write(data)
        else {
          synchronized(connections.remove(number)): Unit
          connection.close()
        }
      case None if data.hasRemaining => open(number, UTF_8.decode(data).toString, answer)
      case None => // The service has closed the connection, too.
    }

  private def open(number: Int, address: String, answer: ByteBuffer => Boolean): Unit = {
    val secret = synchronized(secrets.getOrElse(
      address,
      throw new IOException(
        s"the worker has asked for a connection to $address, which Spark has not told it"
      )
    ))
    val channel = Handshake.connect(process, address)
    secret.foreach(new Handshake(channel).authenticate)
    val connection = new LoopbackConnection(channel)
    synchronized(connections.update(number, connection))
    Launcher.spawn("updraft-worker-service") {
      try forward(connection, answer)
      catch { case e: Exception => logDebug(s"the connection to $address has ended: $e") }
    }: Unit
  }

  private def forward(from: LoopbackConnection, answer: ByteBuffer => Boolean): Unit = {
    val buffer = ByteBuffer.allocate(HostServices.BufferBytes)
    var goesOn = true
    while (goesOn) {
      val count = from.read(buffer.clear())
      goesOn = count >= 0 && (count == 0 || answer(buffer.flip()))
    }
    answer(ByteBuffer.allocate(0)): Unit
  }

  override def close(): Unit = synchronized {
    connections.values.foreach(_.close())
    connections.clear()
  }
}

private object HostServices {
  private val BufferBytes = 64 << 10
}
