// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.workers

import java.io.IOException
import java.nio.ByteBuffer
import java.nio.channels.ClosedSelectorException

/** Connection of a worker to a service of this process. One thread reads, and one other thread
  * writes.
  *
  * A worker may send several requests to the state server in one piece. The server writes each
  * answer separately. A read waits for all answers, so that they travel to the worker in one batch.
  *
  * @param patienceMilliseconds
  *   time limit for the next answer. When this time has passed, a read returns the answers so far.
  *   A failed server never sends the remaining answers; a slow server sends them later.
  */
private[workers] final class ServiceConnection(
    connection: LoopbackConnection,
    patienceMilliseconds: Long = ServiceConnection.PatienceMilliseconds
) extends AutoCloseable {

  /** Bytes that the service has written. Only the reader changes this. */
  @volatile private var readBytes = 0L

  /** Lower bound on the bytes that the service will have written when it has answered all requests
    * so far. Only the writer changes this.
    */
  @volatile private var dueBytes = 0L

  /** Write a piece of the worker's stream. */
  def write(piece: ByteBuffer): Unit = {
    val requests = ServiceConnection.requestsIn(piece.duplicate())
    dueBytes = math.max(dueBytes, readBytes) + requests * ServiceConnection.LeastAnswerBytes
    connection.write(piece)
  }

  /** Wait for bytes, then for the missing answers, and copy as many bytes as fit into `target`.
    * Return the number of bytes, or -1 at the end of the stream.
    */
  def read(target: ByteBuffer): Int = {
    val count = more(target, 0)
    if (count > 0) readMissing(target, count) else count
  }

  private def readMissing(target: ByteBuffer, before: Int): Int = {
    var total = before
    var goesOn = true
    while (goesOn && target.hasRemaining && readBytes < dueBytes) {
      val count =
        try more(target, patienceMilliseconds)
        // The next read raises the error again.
        catch { case _: IOException | _: ClosedSelectorException => 0 }
      goesOn = count > 0
      total += math.max(0, count)
    }
    total
  }

  private def more(target: ByteBuffer, milliseconds: Long): Int = {
    val count = connection.read(target, milliseconds)
    if (count > 0) readBytes += count
    count
  }

  override def close(): Unit = connection.close()
}

private[workers] object ServiceConnection {

  /** Version at the start of a request to the state server. */
  private val Version = 0

  /** Size of the smallest answer, which consists only of its length. */
  private val LeastAnswerBytes = 4L

  private val PatienceMilliseconds = 50L

  /** Return the number of requests to the state server in a piece, or 0 if the piece does not
    * consist of whole requests.
    */
  private[workers] def requestsIn(piece: ByteBuffer): Int = {
    var count = 0
    while (piece.remaining() >= 8) {
      val version = piece.getInt()
      val size = piece.getInt()
      if (version != Version || size < 0 || size > piece.remaining()) return 0
      piece.position(piece.position() + size): Unit
      count += 1
    }
    if (piece.hasRemaining) 0 else count
  }
}
