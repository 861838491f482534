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

/** Written file in this executor's storage, with one class for each way of delivery. */
trait WrittenFile extends PartSink {

  /** Complete the file after the writer has finished; raise an error if the file is not in this
    * executor's storage.
    */
  def complete(receipt: Receipt): Unit

  /** Abandon the file. */
  def abandon(): Unit
}

/** File stored by the writer. Spark commits what this executor sees under the path, so a file that
  * the executor does not see would be lost silently.
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
        s"storage that both can reach. Without such storage, set ${WriteConf.delivery.key} = return"
    )
  }

  override def abandon(): Unit = ()
}

/** File that this executor stores through Hadoop while the writer returns the encoded bytes. */
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

  /** Abandon the file. An object store never makes an abandoned file visible; any other storage
    * deletes the file.
    */
  override def abandon(): Unit =
    if (stream.hasCapability(StreamCapabilities.ABORTABLE_STREAM)) stream.abort()
    else {
      stream.close()
      path.getFileSystem(conf).delete(path, false)
    }
}
