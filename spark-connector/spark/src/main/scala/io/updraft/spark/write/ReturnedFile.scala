// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write

import java.nio.ByteBuffer

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FSDataOutputStream, Path, StreamCapabilities}

import io.updraft.client.PartSink

/** A file that this executor stores through Hadoop while its encoded bytes come back. */
final class ReturnedFile(path: Path, conf: Configuration) extends PartSink {
  private[this] val stream: FSDataOutputStream =
    path.getFileSystem(conf).create(path, false)
  private[this] var buffer = Array.emptyByteArray

  override def append(part: ByteBuffer): Unit = {
    val bytes = part.remaining()
    if (buffer.length < bytes) buffer = new Array[Byte](bytes)
    part.get(buffer, 0, bytes)
    stream.write(buffer, 0, bytes)
  }

  /** Everything is here. */
  def complete(): Unit = stream.close()

  /** The file is not wanted: an object store never shows it, and others do not keep it. */
  def abandon(): Unit =
    if (stream.hasCapability(StreamCapabilities.ABORTABLE_STREAM)) stream.abort()
    else {
      stream.close()
      path.getFileSystem(conf).delete(path, false)
    }
}
