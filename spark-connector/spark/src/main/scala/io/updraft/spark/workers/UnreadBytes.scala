// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.workers

import java.nio.ByteBuffer

import scala.collection.mutable

import org.apache.arrow.memory.ArrowBuf

/** Bytes that Spark's runner has sent to a worker and that the worker has not yet reported as read.
  * If the worker returns without reading these bytes, they belong to the runner's next task. The
  * worker reports only a count, so it cannot choose the bytes of the next task.
  */
private[workers] final class UnreadBytes extends AutoCloseable {

  /** Pieces, each with the offset of its end. */
  private val pieces = mutable.Queue.empty[(Long, ArrowBuf)]
  private var sentBytes = 0L
  private var readBytes = 0L

  /** Number of bytes that were sent before the worker's last output arrived. */
  private var sentBeforeOutput = 0L

  /** Record that output of the worker is about to go to Spark. */
  def markOutput(): Unit = synchronized { sentBeforeOutput = sentBytes }

  /** Return whether the worker has read everything that was sent before its last output arrived.
    * Only later bytes can belong to the next task, which Spark begins after that output.
    */
  def isReadThroughLastOutput: Boolean = synchronized(readBytes >= sentBeforeOutput)

  /** Return how many bytes the runner has sent that the worker has not read. */
  def ahead: Long = synchronized(sentBytes - readBytes)

  /** Remember a piece that is about to be sent. */
  def add(piece: ArrowBuf): Unit = synchronized {
    piece.getReferenceManager.retain()
    sentBytes += piece.writerIndex()
    pieces.enqueue((sentBytes, piece)): Unit
  }

  /** Forget the first `count` bytes, which the worker has read. Raise an IllegalStateException if
    * the count is impossible.
    */
  def readThrough(count: Long): Unit = synchronized {
    if (count < readBytes || count > sentBytes) {
      throw new IllegalStateException(
        s"the pool reported $count bytes as read, after $readBytes of $sentBytes"
      )
    }
    readBytes = count
    while (pieces.headOption.exists { case (end, _) => end <= count }) pieces.dequeue()._2.close()
  }

  /** Return the bytes that the worker has not read. */
  def rest: ByteBuffer = synchronized {
    val rest = ByteBuffer.allocate((sentBytes - readBytes).toInt)
    pieces.foreach { case (end, piece) =>
      val from = math.max(0L, readBytes - (end - piece.writerIndex()))
      rest.put(piece.nioBuffer(from, (piece.writerIndex() - from).toInt))
    }
    rest.flip()
  }

  override def close(): Unit = synchronized {
    pieces.foreach(_._2.close())
    pieces.clear()
  }
}
