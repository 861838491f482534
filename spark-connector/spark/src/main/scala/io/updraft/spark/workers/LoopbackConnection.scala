// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.workers

import java.io.{EOFException, InputStream}
import java.nio.ByteBuffer
import java.nio.channels.{SelectionKey, Selector, SocketChannel}

/** Connection between Spark and a Python worker. One thread reads, and one other thread may write.
  */
private[workers] final class LoopbackConnection(channel: SocketChannel) extends AutoCloseable {
  channel.configureBlocking(false): Unit
  private val readable = Selector.open()
  private val writable = Selector.open()
  channel.register(readable, SelectionKey.OP_READ): Unit
  channel.register(writable, SelectionKey.OP_WRITE): Unit

  /** Bytes to return before reading from the channel. */
  private var unread = ByteBuffer.allocate(0)

  /** Wait for bytes, and copy as many as fit. Return the number of bytes, -1 at the end of the
    * stream, or 0 after [[wake]] or if the time limit expires.
    *
    * @param milliseconds
    *   time to wait; 0 means no limit
    */
  def read(target: ByteBuffer, milliseconds: Long = 0): Int =
    if (unread.hasRemaining) {
      val count = math.min(unread.remaining(), target.remaining())
      target.put(unread.duplicate().limit(unread.position() + count)): Unit
      unread.position(unread.position() + count): Unit
      count
    } else {
      val count = channel.read(target)
      if (count != 0) count
      else {
        readable.select(milliseconds): Unit
        val woken = readable.selectedKeys().isEmpty
        readable.selectedKeys().clear()
        if (woken) 0 else channel.read(target)
      }
    }

  /** Wake the reader: the next [[read]] that would wait returns 0. */
  def wake(): Unit = if (readable.isOpen) readable.wakeup(): Unit

  /** Put bytes back, to be read before everything else. Call this only on the reading thread. */
  def giveBack(bytes: ByteBuffer): Unit = if (bytes.hasRemaining) {
    val joined = ByteBuffer.allocate(bytes.remaining() + unread.remaining())
    joined.put(bytes).put(unread).flip(): Unit
    unread = joined
  }

  /** Write all bytes. */
  def write(bytes: ByteBuffer): Unit =
    while (bytes.hasRemaining)
      if (channel.write(bytes) == 0) {
        writable.select(): Unit
        writable.selectedKeys().clear()
        if (!channel.isOpen) throw new EOFException("Spark has closed the connection")
      }

  /** Return a stream of the connection's bytes. The stream ends when the connection ends, or at a
    * [[wake]] while `isWanted` is false.
    */
  def stream(isWanted: => Boolean = true): InputStream = new InputStream {
    override def read(): Int = {
      val one = new Array[Byte](1)
      if (read(one, 0, 1) < 0) -1 else one(0) & 0xff
    }

    override def read(target: Array[Byte], offset: Int, length: Int): Int = {
      var count = 0
      while (count == 0 && length > 0) {
        count = LoopbackConnection.this.read(ByteBuffer.wrap(target, offset, length))
        if (count == 0 && !isWanted) count = -1
      }
      count
    }
  }

  /** Tell Spark that the worker has ended, and discard the bytes that Spark sends until Spark hangs
    * up.
    *
    * If we closed the connection at once, the kernel could discard the worker's last output before
    * Spark has read it.
    */
  def end(): Unit = {
    if (channel.isOpen) channel.shutdownOutput(): Unit
    drain()
  }

  /** Discard the bytes that Spark sends until Spark hangs up. */
  def drain(): Unit = {
    val dropped = ByteBuffer.allocate(64 << 10)
    while (read(dropped.clear()) >= 0) {}
  }

  /** Close the connection, and wake both threads. Idempotent. */
  override def close(): Unit = {
    channel.close()
    readable.close()
    writable.close()
  }
}
