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
private[workers] final class WorkerExchange(exchange: Exchange, runner: RunnerConnection)
    extends AutoCloseable with Logging {
  private val over = new CountDownLatch(1)
  @volatile private var end: WorkerEnd = WorkerEnd.Returned
  @volatile private var hasReturned = false
  @volatile private var hasWritten = false
  private val room = new Object
  private val notRead = new ByteArrayOutputStream
  private val replies = new Thread(() => receive(), "updraft-worker-replies")
  private var pieceBytes = WorkerExchange.LeastPieceBytes

  /** Whether the worker has written anything to Spark. */
  def hasOutput: Boolean = hasWritten

  /** Carry bytes in both directions until the exchange ends. Return None if Spark hung up. */
  def carry(header: Array[Byte]): Option[WorkerEnd] = {
    replies.setDaemon(true)
    replies.start()
    send(ByteBuffer.wrap(header))
    var isOpen = true
    while (isOpen && isSending)
      if (waitForRoom()) isOpen = forward()
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
      if (!sendIfRunning(piece)) runner.giveBack(taken(piece))
    }
    count >= 0
  }

  private def taken(piece: ArrowBuf): Array[Byte] =
    try {
      val bytes = new Array[Byte](piece.writerIndex().toInt)
      piece.getBytes(0, bytes)
      bytes
    } finally piece.close()

  /** Send a piece, which is then taken over. Return false if the exchange has ended. */
  private def sendIfRunning(piece: ArrowBuf): Boolean = room.synchronized {
    if (isSending) {
      // If the exchange has just failed, the thread of the replies finds out why.
      try exchange.send(StreamBatches.of(piece, SparkInternals.allocator), 1)
      catch { case e: ExchangeException => logDebug(s"the exchange has failed: $e") }
      true
    } else false
  }

  private def send(bytes: ByteBuffer): Unit =
    while (bytes.hasRemaining && waitForRoom()) {
      val count = math.min(bytes.remaining(), WorkerExchange.MostPieceBytes)
      val piece = SparkInternals.allocator.buffer(count.toLong)
      piece.setBytes(0, bytes.duplicate().limit(bytes.position() + count)): Unit
      piece.writerIndex(count.toLong): Unit
      bytes.position(bytes.position() + count): Unit
      if (!sendIfRunning(piece)) piece.close()
    }

  /** Wait until the exchange takes one more batch. Return false if it has ended. */
  private def waitForRoom(): Boolean = room.synchronized {
    while (isSending && !exchange.hasRoom) room.wait()
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
        tellSender()
        reply = exchange.take()
      }
      end = if (hasReturned) WorkerEnd.Returned else failedWithout("the worker's end")
    } catch {
      case e: ExchangeException if e.kind() == ErrorKind.ERROR_KIND_USER => end = WorkerEnd.Raised
      case e: Throwable => end = WorkerEnd.Failed(e)
    }
    over.countDown()
    tellSender()
  }

  private def failedWithout(what: String) =
    WorkerEnd.Failed(new IllegalStateException(s"the pool finished without $what"))

  private def accept(piece: ByteBuffer): Unit =
    if (hasReturned) {
      // The worker returns what it has not read.
      val bytes = new Array[Byte](piece.remaining())
      piece.get(bytes): Unit
      notRead.write(bytes)
    } else if (piece.hasRemaining) {
      hasWritten = true
      runner.write(piece)
    } else {
      room.synchronized {
        hasReturned = true
        exchange.finishSending()
      }
    }

  private def tellSender(): Unit = {
    room.synchronized(room.notifyAll())
    if (!isSending) runner.wake()
  }

  /** Cancel what has not ended and release everything. */
  override def close(): Unit = {
    exchange.cancel("closed")
    // The thread may wait for Spark to read. Spark has then hung up, or the connection is closed.
    replies.join(WorkerExchange.JoinMilliseconds)
    exchange.close()
  }
}

private[workers] object WorkerExchange {
  private val LeastPieceBytes = 4 << 10
  private val MostPieceBytes = 1 << 20

  /** Time in which the thread of an ended exchange notices that. */
  private val JoinMilliseconds = 10000L

  /** Return how many bytes to read next, after a read of `count` bytes. */
  private def pieceBytesAfter(count: Int): Int =
    math.max(LeastPieceBytes, math.min(2 * count, MostPieceBytes))
}
