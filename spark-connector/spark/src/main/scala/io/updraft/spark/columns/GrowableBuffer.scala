// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.columns

import org.apache.arrow.memory.ArrowBuf
import org.apache.spark.sql.updraft.SparkInternals
import org.apache.spark.unsafe.Platform

/** Growing off-heap buffer. The first allocation has the final size of the previous buffer. */
private[columns] final class GrowableBuffer extends AutoCloseable {
  private[this] var buffer: ArrowBuf = _
  private[this] var start = 0L
  private[this] var capacity = 0L
  private[this] var lastBytes = GrowableBuffer.FirstBytes

  /** Return the start of the buffer; valid until the next [[reserve]]. */
  def address: Long = start

  /** Make room for `bytes` bytes in total, keeping the first `used` bytes. */
  def reserve(bytes: Long, used: Long): Unit = if (bytes > capacity) grow(bytes, used)

  private def grow(bytes: Long, used: Long): Unit = {
    val wanted = math.max(bytes, if (buffer == null) lastBytes else capacity * 2)
    val grown = SparkInternals.allocator.buffer(wanted)
    if (buffer != null) {
      Platform.copyMemory(null, start, null, grown.memoryAddress(), used)
      buffer.close()
    }
    buffer = grown
    start = grown.memoryAddress()
    capacity = grown.capacity()
  }

  /** Return the buffer with `bytes` bytes of content. This object is empty afterwards. */
  def finish(bytes: Long): ArrowBuf =
    if (buffer == null) {
      SparkInternals.allocator.getEmpty
    } else {
      val finished = buffer
      finished.writerIndex(bytes)
      lastBytes = math.max(bytes, GrowableBuffer.FirstBytes)
      forget()
      finished
    }

  override def close(): Unit = {
    if (buffer != null) buffer.close()
    forget()
  }

  private def forget(): Unit = {
    buffer = null
    start = 0L
    capacity = 0L
  }
}

private object GrowableBuffer {
  val FirstBytes = 4096L
}
