// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.workers

import java.nio.ByteBuffer

import scala.collection.mutable

import org.apache.arrow.memory.ArrowBuf

/** Bytes of Spark's runner that went to a worker, until the worker reports that it has read them.
  * If the worker returns earlier, the rest belongs to the runner's next task. The worker only
  * counts: it must not choose the bytes of a task.
  */
private[workers] final class UnreadBytes extends AutoCloseable {

  /** Pieces with the offset of their ends. */
  private val pieces = mutable.Queue.empty[(Long, ArrowBuf)]
  private var sentBytes = 0L
  private var readBytes = 0L

  /** Count of bytes that went to the worker before it wrote its last output. */
  private var sentBeforeOutput = 0L

  /** Note that output of the worker is about to go to Spark. */
  def markOutput(): Unit = synchronized { sentBeforeOutput = sentBytes }

  /** Return whether the worker has read everything that was sent before its last output. Only later
    * bytes can belong to the next task, which Spark begins after that output.
    */
  def isReadThroughLastOutput: Boolean = synchronized(readBytes >= sentBeforeOutput)

  /** Return how many bytes the runner is ahead of the worker. */
  def ahead: Long = synchronized(sentBytes - readBytes)

  /** Keep a piece that is about to be sent. */
  def add(piece: ArrowBuf): Unit = synchronized {
    piece.getReferenceManager.retain()
    sentBytes += piece.writerIndex()
    pieces.enqueue((sentBytes, piece)): Unit
  }

  /** Forget the bytes that the worker has read, which are the first `count`; raise an
    * IllegalStateException for a count that cannot be right.
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
