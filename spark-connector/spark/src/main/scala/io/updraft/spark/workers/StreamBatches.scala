// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.workers

import java.nio.ByteBuffer

import scala.jdk.CollectionConverters._

import org.apache.arrow.memory.{ArrowBuf, BufferAllocator}
import org.apache.arrow.vector.ipc.message.{ArrowFieldNode, ArrowRecordBatch}
import org.apache.arrow.vector.types.pojo.{ArrowType, Field, FieldType, Schema}

/** Batches of a worker exchange: pieces of byte streams, as proto/README.md describes them. */
private[workers] object StreamBatches {

  private def field(name: String, kind: ArrowType) =
    new Field(name, new FieldType(false, kind, null), java.util.List.of())

  val schema: Schema = new Schema(
    Seq(
      field("connection", new ArrowType.Int(32, true)),
      field("data", ArrowType.Binary.INSTANCE)
    ).asJava
  )

  /** Make a batch with one piece of the runner's stream. Take the piece over. */
  def of(piece: ArrowBuf, allocator: BufferAllocator): ArrowRecordBatch = {
    val connection = filled(allocator, 0)
    val offsets = filled(allocator, 0, piece.writerIndex().toInt)
    val none = allocator.getEmpty
    val nodes = Seq.fill(2)(new ArrowFieldNode(1, 0))
    val buffers = Seq(none, connection, none, offsets, piece)
    try new ArrowRecordBatch(1, nodes.asJava, buffers.asJava)
    finally Seq(connection, offsets, piece).foreach(_.close())
  }

  private def filled(allocator: BufferAllocator, numbers: Int*): ArrowBuf = {
    val buffer = allocator.buffer(numbers.size * 4L)
    numbers.zipWithIndex.foreach { case (number, index) => buffer.setInt(index * 4L, number) }
    buffer.writerIndex(numbers.size * 4L)
  }

  /** Return the pieces of the runner's stream in a reply, which stays open. */
  def pieces(batch: ArrowRecordBatch): Seq[ByteBuffer] = {
    // Each column has a buffer for nulls, of which there are none.
    val buffers = batch.getBuffers
    val (connections, offsets, data) = (buffers.get(1), buffers.get(3), buffers.get(4))
    (0 until batch.getLength).map { row =>
      val connection = connections.getInt(row * 4L)
      if (connection != 0)
        throw new IllegalStateException(s"the pool wrote to connection $connection")
      val start = offsets.getInt(row * 4L)
      data.nioBuffer(start.toLong, offsets.getInt(row * 4L + 4) - start)
    }
  }
}
