// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.workers

import java.io.{EOFException, IOException}
import java.nio.ByteBuffer
import java.nio.channels.ClosedSelectorException

import scala.util.Using
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

  /** The worker's `main()` returned without reading everything that Spark had sent to it. The
    * unread bytes cannot be told apart from the start of the next task.
    */
  case object ReturnedEarly extends WorkerEnd

  /** The worker's `main()` raised an exception, and has reported the exception to Spark if it
    * could.
    */
  final case class Raised(error: Throwable) extends WorkerEnd

  /** Spark has closed its connection to the worker. */
  case object HungUp extends WorkerEnd

  /** The pool, or the connection to the pool, failed. */
  final case class Failed(error: Throwable) extends WorkerEnd
}

/** Worker exchange: one run of a worker's `main()` on the pool.
  *
  * The tunnel's thread sends the output of Spark's runner. The reply thread passes the worker's
  * output to Spark, and only this thread replaces a lost call. Each service of Spark that the
  * worker calls has a thread that sends the service's answers.
  */
private[workers] final class WorkerExchange(
    exchange: Exchange,
    runner: LoopbackConnection,
    services: HostServices,
    log: java.util.List[String] => Unit
) extends AutoCloseable with Logging {

  /** Monitor that guards sending and the fields below. */
  private val sending = new Object
  private var end: Option[WorkerEnd] = None
  private var hasReturned = false
  private val unread = new UnreadBytes
  private var pieceBytes = WorkerExchange.LeastPieceBytes
  private var replies: Thread = _

  /** True once the worker has written anything to Spark. */
  @volatile var hasOutput: Boolean = false

  /** Carry bytes in both directions until the exchange ends. */
  def carry(header: WorkerHeader): WorkerEnd = {
    replies = DaemonThread.start("updraft-worker-replies")(receive())
    var isOpen = !header.hasLateService || sendLateService()
    while (isOpen && waitForReader()) isOpen = forward()
    if (!isOpen) cancel("Spark has closed the connection to its worker")
    outcome()
  }

  /** Read the address of a service that follows the header, and send it. Return false if Spark has
    * hung up.
    */
  private def sendLateService(): Boolean =
    try {
      val late = new HeaderCopy(runner.stream(isSending))
      services.add(WorkerHeader.service(late))
      send(late.bytes)
      true
    } catch { case _: EOFException => !isSending }

  /** Cancel the exchange, because Spark no longer needs it. Callable from any thread. */
  def cancel(reason: String): Unit = {
    // Record the end first, so that the reply thread does not treat the cancellation as a failure.
    finish(WorkerEnd.HungUp)
    exchange.cancel(reason)
    services.close()
  }

  /** Record the end, unless an end is already recorded, and wake all threads. */
  private def finish(ended: => WorkerEnd): Unit = {
    sending.synchronized {
      if (end.isEmpty) end = Some(ended)
      sending.notifyAll()
    }
    runner.wake()
  }

  private def isSending: Boolean = sending.synchronized(!hasReturned && end.isEmpty)

  /** Wait for the end. Then put the bytes that belong to the runner's next task back into the
    * connection.
    */
  private def outcome(): WorkerEnd = {
    val ended = sending.synchronized {
      while (end.isEmpty) sending.wait()
      end.get
    }
    if (ended == WorkerEnd.Returned) runner.giveBack(unread.rest)
    ended
  }

  /** Send the next bytes of Spark's runner. Return false if the runner has hung up. */
  private def forward(): Boolean = {
    val piece = SparkInternals.allocator.buffer(pieceBytes.toLong)
    val count =
      try runner.read(piece.nioBuffer(0, pieceBytes))
      catch { case NonFatal(e) => piece.close(); throw e }
    if (count <= 0) piece.close()
    else {
      pieceBytes = WorkerExchange.pieceBytesAfter(count)
      sendOrKeep(fitted(piece, count))
    }
    count >= 0
  }

  /** Return the first `count` bytes as a piece. Copy them to a smaller buffer if they fill at most
    * half of `piece`, because the piece stays in memory until the worker has read it.
    */
  private def fitted(piece: ArrowBuf, count: Int): ArrowBuf = {
    piece.writerIndex(count.toLong): Unit
    if (count > piece.capacity() / 2) piece
    else
      Using.resource(piece) { large =>
        val small = SparkInternals.allocator.buffer(count.toLong)
        small.setBytes(0, large, 0, count.toLong): Unit
        small.writerIndex(count.toLong)
      }
  }

  private def send(bytes: Array[Byte]): Unit =
    bytes.grouped(WorkerExchange.MostPieceBytes).foreach { part =>
      val piece = SparkInternals.allocator.buffer(part.length.toLong)
      piece.setBytes(0, part): Unit
      piece.writerIndex(part.length.toLong): Unit
      sendOrKeep(piece)
    }

  /** Send a piece of the runner's stream. After the worker's end, only keep the piece for the next
    * task.
    */
  private def sendOrKeep(piece: ArrowBuf): Unit = {
    unread.add(piece)
    sendIfRunning(WorkerExchange.Runner, piece): Unit
  }

  /** Send an answer of a service of this process, or an empty piece at the end of the service's
    * stream. Return false if the exchange has ended. If the answer cannot be sent, end the
    * exchange, because the worker would wait for the answer.
    */
  private def answer(connection: Int, bytes: ByteBuffer): Boolean =
    try {
      val piece = SparkInternals.allocator.buffer(math.max(1, bytes.remaining()).toLong)
      piece.writerIndex(bytes.remaining().toLong): Unit
      piece.setBytes(0, bytes): Unit
      sendIfRunning(connection, piece)
    } catch {
      case NonFatal(e) =>
        finish(WorkerEnd.Failed(e))
        exchange.cancel(s"an answer of a service cannot be sent: $e")
        false
    }

  /** Wait for room and send a piece. Take ownership of the piece in any case. Return false if the
    * exchange has ended.
    */
  private def sendIfRunning(connection: Int, piece: ArrowBuf): Boolean = sending.synchronized {
    if (waitWhile(!exchange.hasRoom)) {
      // If the exchange has just failed, the reply thread finds out why.
      try
        exchange.sendBesideTake(StreamBatches.of(connection, piece, SparkInternals.allocator), 1)
      catch { case e: ExchangeException => logDebug(s"the exchange has failed: $e") }
      true
    } else {
      piece.close()
      false
    }
  }

  /** Wait until the exchange has room for one more batch and the worker has read most of the bytes
    * of Spark's runner. Without this wait, a worker that waits for a service would hold all unread
    * bytes in memory. Return false if the exchange has ended.
    */
  private def waitForReader(): Boolean =
    waitWhile(unread.ahead >= WorkerExchange.MostAheadBytes || !exchange.hasRoom)

  private def waitWhile(condition: => Boolean): Boolean = sending.synchronized {
    while (isSending && condition) sending.wait()
    // Another sender may be waiting for the room that this thread takes. Wake that sender, so that
    // it checks again: the exchange reports new room only after a check that found none.
    sending.notifyAll()
    isSending
  }

  private def receive(): Unit = {
    val ended =
      try {
        var reply = exchange.take()
        while (reply.kind() != Reply.Kind.END) {
          if (reply.kind() == Reply.Kind.BATCH) {
            try StreamBatches.pieces(reply.batch()).foreach(accept)
            finally reply.batch().close()
          } else if (reply.kind() == Reply.Kind.LOG) log(reply.lines())
          sending.synchronized(sending.notifyAll())
          reply = exchange.take()
        }
        WorkerEnd.Failed(
          new IllegalStateException(
            "the pool ended the exchange before the worker's module returned"
          )
        )
      } catch {
        case e: ExchangeException if e.kind() == ErrorKind.ERROR_KIND_USER => WorkerEnd.Raised(e)
        case e: RunnerException =>
          exchange.cancel(e.getMessage)
          WorkerEnd.HungUp
        case e: Throwable =>
          exchange.cancel(s"the client failed: $e")
          WorkerEnd.Failed(e)
      }
    // Spark already has the worker's output, so later failures no longer matter.
    finish(if (hasReturned) returned else ended)
  }

  private def returned: WorkerEnd =
    if (unread.isReadThroughLastOutput) WorkerEnd.Returned else WorkerEnd.ReturnedEarly

  private def accept(piece: Piece): Unit = {
    unread.readThrough(piece.readBytes)
    piece.data.foreach { data =>
      if (piece.connection == WorkerExchange.Runner) acceptOutput(data)
      else services.accept(piece.connection, data)(answer(piece.connection, _))
    }
  }

  private def acceptOutput(data: ByteBuffer): Unit =
    if (data.hasRemaining) {
      hasOutput = true
      unread.markOutput()
      try runner.write(data)
      catch {
        case e @ (_: IOException | _: ClosedSelectorException) => throw new RunnerException(e)
      }
    } else {
      sending.synchronized {
        hasReturned = true
        exchange.finishSending()
        sending.notifyAll()
      }
      runner.wake()
    }

  /** Cancel what has not ended and release everything. Idempotent. */
  override def close(): Unit = {
    cancel("the worker has ended")
    // The thread ends soon: it waits only for the exchange, or for Spark to read or hang up.
    if (replies != null) replies.join(WorkerExchange.JoinMilliseconds)
    exchange.close()
    unread.close()
  }
}

/** Failure of the connection to Spark's runner. */
private final class RunnerException(cause: Throwable)
    extends RuntimeException("Spark has closed the connection to its worker", cause)

private[workers] object WorkerExchange {

  /** Connection of Spark's runner. */
  private val Runner = 0

  /** Limit on the bytes that Spark's runner has sent and the worker has not read. */
  private val MostAheadBytes = 4L << 20

  private val LeastPieceBytes = 4 << 10
  private val MostPieceBytes = 1 << 20

  /** Time limit for the reply thread to end after its exchange. */
  private val JoinMilliseconds = 10000L

  /** Return how many bytes to read next, after a read of `count` bytes. */
  private def pieceBytesAfter(count: Int): Int =
    math.max(LeastPieceBytes, math.min(2 * count, MostPieceBytes))
}
