// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.workers

import java.io.{ByteArrayOutputStream, DataInputStream, DataOutputStream, EOFException, InputStream}
import java.nio.charset.StandardCharsets.UTF_8

/** Reader of the numbers and texts at the start of a PySpark stream. It copies what it reads for
  * PySpark's worker on the pool, except the parts that the caller leaves out.
  */
private[workers] final class HeaderCopy(stream: InputStream) {
  private val in = new DataInputStream(stream)
  private val copied = new ByteArrayOutputStream
  private val out = new DataOutputStream(copied)

  /** Return the copy. */
  def bytes: Array[Byte] = copied.toByteArray

  def int(): Int = {
    val value = in.readInt()
    out.writeInt(value)
    value
  }

  def long(): Long = {
    val value = in.readLong()
    out.writeLong(value)
    value
  }

  def boolean(): Boolean = {
    val value = in.readBoolean()
    out.writeBoolean(value)
    value
  }

  /** Copy bytes that follow their count, and return them. */
  def block(): Array[Byte] = {
    val bytes = readBytes(count())
    out.write(bytes)
    bytes
  }

  def text(): String = {
    val value = readText()
    write(value)
    value
  }

  /** Read and copy a count, which must not be negative. */
  def count(): Int = {
    val value = readCount()
    out.writeInt(value)
    value
  }

  def write(value: Int): Unit = out.writeInt(value)

  def write(value: Boolean): Unit = out.writeBoolean(value)

  def write(value: String): Unit = {
    val encoded = value.getBytes(UTF_8)
    out.writeInt(encoded.length)
    out.write(encoded)
  }

  /** Read without copying. */
  def readInt(): Int = in.readInt()

  def readLong(): Long = in.readLong()

  def readBoolean(): Boolean = in.readBoolean()

  def readCount(): Int = {
    val value = in.readInt()
    if (value < 0) throw new NotPySparkException(s"it has the count $value")
    value
  }

  def readText(): String = new String(readBytes(readCount()), UTF_8)

  def readBytes(count: Int): Array[Byte] = {
    val bytes = in.readNBytes(count)
    if (bytes.length < count) throw new EOFException("the stream ended inside its header")
    bytes
  }

  /** Copy the rest of the stream. */
  def rest(): Unit = in.transferTo(out): Unit
}

/** Raised if a stream does not begin like a stream of Spark's runner. */
private[workers] final class NotPySparkException(problem: String)
    extends RuntimeException(
      s"the stream of Spark's runner does not have the form of this Spark version ($problem): " +
        "use the connector's jar for this version of Spark"
    )
