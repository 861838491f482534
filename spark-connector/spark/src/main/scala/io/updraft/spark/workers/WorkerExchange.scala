// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.workers

import java.io.ByteArrayOutputStream
import java.nio.ByteBuffer
import java.util.concurrent.CountDownLatch

import scala.util.control.NonFatal

import org.apache.arrow.memory.ArrowBuf
import org.apache.spark.internal.Logging
import org.apache.spark.sql.updraft.SparkInternals

import io.updraft.client.{Exchange, ExchangeException, Reply}
import io.updraft.proto.v1.ErrorKind

/** End of a worker exchange. */
private[workers] sealed trait WorkerEnd

private[workers] object WorkerEnd {

  /** The worker's `main()` returned. The worker may serve Spark again. */
  case object Returned extends WorkerEnd

  /** The worker's `main()` raised an exception, which it has told Spark. */
  case object Raised extends WorkerEnd

  /** The pool or the connection to it failed. */
  final case class Failed(error: Throwable) extends WorkerEnd
}

/** Worker exchange: one run of a worker's `main()` on the pool. The tunnel's thread sends what
  * Spark's runner writes, and a thread of the exchange gives Spark what the worker writes.
  */
private[workers] final class WorkerExchange(
    exchange: Exchange,
    runner: LoopbackConnection,
    services: HostServices
) extends AutoCloseable with Logging {
  private val over = new CountDownLatch(1)
  @volatile private var end: WorkerEnd = WorkerEnd.Returned
  @volatile private var hasReturned = false
  @volatile private var hasWritten = false
  @volatile private var readBytes = 0L
  private var sentBytes = 0L
  private var pieceBytes = WorkerExchange.LeastPieceBytes
  private val notRead = new ByteArrayOutputStream

  /** Monitor of the threads that send. */
  private val sending = new Object
  private var replies: Thread = _

  /** Whether the worker has written anything to Spark. */
  def hasOutput: Boolean = hasWritten

  /** Carry bytes in both directions until the exchange ends. Return None if Spark hung up. */
  def carry(header: WorkerHeader): Option[WorkerEnd] = {
    replies = Launcher.spawn("updraft-worker-replies")(receive())
    send(header.bytes)
    if (header.hasLateService) {
      val late = new HeaderCopy(runner.stream(isSending))
      services.add(WorkerHeader.service(late))
      send(late.bytes)
    }
    var isOpen = true
    while (isOpen && waitForRoom(isRunner = true)) isOpen = forward()
    if (isOpen) {
      over.await()
      runner.giveBack(notRead.toByteArray)
      Some(end)
    } else {
      exchange.cancel("Spark has closed the connection to its worker")
      None
    }
  }

  private def isSending: Boolean = !hasReturned && over.getCount > 0

  /** Send the next bytes of Spark's runner. Return false if it has hung up. */
  private def forward(): Boolean = {
    val piece = SparkInternals.allocator.buffer(pieceBytes.toLong)
    val count =
      try runner.read(piece.nioBuffer(0, pieceBytes))
      catch { case NonFatal(e) => piece.close(); throw e }
    if (count <= 0) piece.close()
    else {
      piece.writerIndex(count.toLong): Unit
      pieceBytes = WorkerExchange.pieceBytesAfter(count)
      // Bytes that come after the worker's end belong to Spark's next task.
      if (!sendIfRunning(WorkerExchange.Runner, piece)) runner.giveBack(taken(piece))
      sentBytes += count
    }
    count >= 0
  }

  private def taken(piece: ArrowBuf): Array[Byte] =
    try {
      val bytes = new Array[Byte](piece.writerIndex().toInt)
      piece.getBytes(0, bytes)
      bytes
    } finally piece.close()

  private def send(bytes: Array[Byte]): Unit =
    bytes.grouped(WorkerExchange.MostPieceBytes).foreach { part =>
      if (waitForRoom()) {
        val piece = SparkInternals.allocator.buffer(part.length.toLong)
        piece.setBytes(0, part): Unit
        piece.writerIndex(part.length.toLong): Unit
        if (!sendIfRunning(WorkerExchange.Runner, piece)) piece.close()
        sentBytes += part.length
      }
    }

  /** Send what a service of this process has answered; nothing at the end of its stream. Return
    * false if the exchange has ended.
    */
  private def answer(connection: Int, bytes: ByteBuffer): Boolean = waitForRoom() && {
    val piece = SparkInternals.allocator.buffer(math.max(1, bytes.remaining()).toLong)
    piece.writerIndex(bytes.remaining().toLong): Unit
    piece.setBytes(0, bytes): Unit
    val isSent = sendIfRunning(connection, piece)
    if (!isSent) piece.close()
    isSent
  }

  /** Send a piece, which is then taken over. Return false if the exchange has ended. */
  private def sendIfRunning(connection: Int, piece: ArrowBuf): Boolean = sending.synchronized {
    // Another thread may have taken the room.
    val isRunning = waitForRoom()
    if (isRunning) {
      // If the exchange has just failed, the thread of the replies finds out why.
      try exchange.send(StreamBatches.of(connection, piece, SparkInternals.allocator), 1)
      catch { case e: ExchangeException => logDebug(s"the exchange has failed: $e") }
    }
    isRunning
  }

  /** Wait until the exchange takes one more batch. Return false if it has ended.
    *
    * @param isRunner
    *   true to wait, too, until the worker has read most of what Spark's runner has sent. The
    *   worker has to keep the rest while it waits for a service
    */
  private def waitForRoom(isRunner: Boolean = false): Boolean = sending.synchronized {
    def isAhead = isRunner && sentBytes - readBytes >= WorkerExchange.MostAheadBytes
    while (isSending && (isAhead || !exchange.hasRoom)) sending.wait()
    isSending
  }

  private def receive(): Unit = {
    try {
      var reply = exchange.take()
      while (reply.kind() != Reply.Kind.END) {
        if (reply.kind() == Reply.Kind.BATCH) {
          try StreamBatches.pieces(reply.batch()).foreach(accept)
          finally reply.batch().close()
        }
        tellSenders()
        reply = exchange.take()
      }
      if (!hasReturned)
        end = WorkerEnd.Failed(new IllegalStateException("the pool did not tell the worker's end"))
    } catch {
      case e: ExchangeException if e.kind() == ErrorKind.ERROR_KIND_USER => end = WorkerEnd.Raised
      case e: Throwable => end = WorkerEnd.Failed(e)
    }
    over.countDown()
    tellSenders()
  }

  private def accept(piece: Piece): Unit = {
    readBytes = piece.readBytes
    piece.data.foreach { data =>
      if (piece.connection == WorkerExchange.Runner) acceptOutput(data)
      else services.accept(piece.connection, data)(answer(piece.connection, _))
    }
  }

  private def acceptOutput(data: ByteBuffer): Unit =
    if (hasReturned) {
      // The worker returns what it has not read.
      val bytes = new Array[Byte](data.remaining())
      data.get(bytes): Unit
      notRead.write(bytes)
    } else if (data.hasRemaining) {
      hasWritten = true
      runner.write(data)
    } else {
      sending.synchronized {
        hasReturned = true
        exchange.finishSending()
      }
    }

  private def tellSenders(): Unit = {
    sending.synchronized(sending.notifyAll())
    if (!isSending) runner.wake()
  }

  /** Cancel what has not ended and release everything. */
  override def close(): Unit = {
    exchange.cancel("the worker has ended")
    services.close()
    // The thread ends soon: it waits for the exchange, or for Spark to read or hang up.
    if (replies != null) replies.join(WorkerExchange.JoinMilliseconds)
    exchange.close()
  }
}

private[workers] object WorkerExchange {

  /** Connection of Spark's runner. */
  private val Runner = 0

  /** Bytes that Spark's runner may be ahead of the worker. */
  private val MostAheadBytes = 4L << 20

  private val LeastPieceBytes = 4 << 10
  private val MostPieceBytes = 1 << 20

  /** Time in which the thread of an ended exchange notices that. */
  private val JoinMilliseconds = 10000L

  /** Return how many bytes to read next, after a read of `count` bytes. */
  private def pieceBytesAfter(count: Int): Int =
    math.max(LeastPieceBytes, math.min(2 * count, MostPieceBytes))
}
