// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.workers

import java.nio.ByteBuffer

import scala.jdk.CollectionConverters._
import scala.util.Using

import org.apache.arrow.memory.{ArrowBuf, BufferAllocator}
import org.apache.arrow.vector.ipc.message.{ArrowFieldNode, ArrowRecordBatch}
import org.apache.arrow.vector.types.pojo.{ArrowType, Field, FieldType, Schema}

/** Batches of a worker exchange: pieces of byte streams, as proto/README.md describes them. */
private[workers] object StreamBatches {

  private def field(name: String, kind: ArrowType, isNullable: Boolean = false) =
    new Field(name, new FieldType(isNullable, kind, null), java.util.List.of())

  val schema: Schema = new Schema(
    Seq(
      field("connection", new ArrowType.Int(32, true)),
      field("data", ArrowType.Binary.INSTANCE, isNullable = true),
      field("read", new ArrowType.Int(64, true))
    ).asJava
  )

  /** Make a batch with one piece of a connection's stream. Take the piece over, even if this fails.
    */
  def of(connection: Int, piece: ArrowBuf, allocator: BufferAllocator): ArrowRecordBatch =
    Using.resource(piece) { _ =>
      Using.resource(filled(allocator, connection)) { number =>
        Using.resource(filled(allocator, 0, piece.writerIndex().toInt)) { offsets =>
          Using.resource(filled(allocator, 0, 0)) { read =>
            val none = allocator.getEmpty
            val nodes = Seq.fill(3)(new ArrowFieldNode(1, 0))
            val buffers = Seq(none, number, none, offsets, piece, none, read)
            new ArrowRecordBatch(1, nodes.asJava, buffers.asJava)
          }
        }
      }
    }

  private def filled(allocator: BufferAllocator, numbers: Int*): ArrowBuf = {
    val buffer = allocator.buffer(numbers.size * 4L)
    numbers.zipWithIndex.foreach { case (number, index) => buffer.setInt(index * 4L, number) }
    buffer.writerIndex(numbers.size * 4L)
  }

  /** Return the pieces in a reply, which stays open. */
  def pieces(batch: ArrowRecordBatch): Seq[Piece] = {
    val buffers = batch.getBuffers
    val (numbers, offsets, data, read) =
      (buffers.get(1), buffers.get(3), buffers.get(4), buffers.get(6))
    val hasNulls = batch.getNodes.get(1).getNullCount > 0
    (0 until batch.getLength).map { row =>
      val start = offsets.getInt(row * 4L)
      val isNull = hasNulls && (buffers.get(2).getByte(row / 8L) >> (row % 8) & 1) == 0
      Piece(
        numbers.getInt(row * 4L),
        if (isNull) None
        else Some(data.nioBuffer(start.toLong, offsets.getInt(row * 4L + 4) - start)),
        read.getLong(row * 8L)
      )
    }
  }
}

/** Piece of a stream from the worker.
  *
  * @param data
  *   bytes; empty at the end of the stream. None if the piece only reports `readBytes`
  * @param readBytes
  *   count of the bytes that the worker has read from Spark's runner
  */
private[workers] final case class Piece(connection: Int, data: Option[ByteBuffer], readBytes: Long)
