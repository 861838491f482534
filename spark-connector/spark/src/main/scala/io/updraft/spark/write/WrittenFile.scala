// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write

import java.io.FileNotFoundException
import java.nio.ByteBuffer

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FSDataOutputStream, Path, StreamCapabilities}
import org.apache.spark.SparkException

import io.updraft.client.PartSink
import io.updraft.proto.v1.Receipt
import io.updraft.spark.config.WriteConf

/** A file as this executor's storage has it, by delivery. */
trait WrittenFile extends PartSink {

  /** The writer has finished; raises an error unless the file is here. */
  def complete(receipt: Receipt): Unit

  /** The file is not wanted. */
  def abandon(): Unit
}

/** A file that the writer stores. Spark commits what lies under the path as this executor sees it:
  * a file that it does not see would be lost without a word.
  */
final class DirectFile(path: Path, conf: Configuration) extends WrittenFile {

  override def append(part: ByteBuffer): Unit =
    throw new IllegalStateException("the writer returned bytes of a file that it stores itself")

  override def complete(receipt: Receipt): Unit = {
    val seen =
      try s"${path.getFileSystem(conf).getFileStatus(path).getLen} bytes"
      catch { case _: FileNotFoundException => "no file" }
    val stored = s"${receipt.getFileBytes} bytes"
    if (seen != stored) throw new SparkException(
      s"the writer stored $stored at $path, where this executor sees $seen: direct delivery needs " +
        s"storage that both reach. Set ${WriteConf.delivery.key} = return if there is none"
    )
  }

  override def abandon(): Unit = ()
}

/** A file that this executor stores through Hadoop while its encoded bytes come back. */
final class ReturnedFile(path: Path, conf: Configuration) extends WrittenFile {
  private[this] val stream: FSDataOutputStream =
    path.getFileSystem(conf).create(path, false)
  private[this] var buffer = Array.emptyByteArray

  override def append(part: ByteBuffer): Unit = {
    val bytes = part.remaining()
    if (buffer.length < bytes) buffer = new Array[Byte](bytes)
    part.get(buffer, 0, bytes)
    stream.write(buffer, 0, bytes)
  }

  override def complete(receipt: Receipt): Unit = stream.close()

  /** An object store never shows it, and others do not keep it. */
  override def abandon(): Unit =
    if (stream.hasCapability(StreamCapabilities.ABORTABLE_STREAM)) stream.abort()
    else {
      stream.close()
      path.getFileSystem(conf).delete(path, false)
    }
}
