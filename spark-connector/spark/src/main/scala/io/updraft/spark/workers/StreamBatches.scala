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

  /** Buffers of a batch: validity and values of each column, and offsets of the second column. */
  private val BufferCount = 7

  private def field(name: String, kind: ArrowType, isNullable: Boolean = false) =
    new Field(name, new FieldType(isNullable, kind, null), java.util.List.of())

  val schema: Schema = new Schema(
    Seq(
      field("connection", new ArrowType.Int(32, true)),
      field("data", ArrowType.Binary.INSTANCE, isNullable = true),
      field("read", new ArrowType.Int(64, true))
    ).asJava
  )

  /** Make a batch with one piece of a connection's stream. Take ownership of the piece, even if
    * this call fails.
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

  /** Return the pieces in a reply, which stays open. Check everything, because a function on the
    * pool may have written the reply itself. Raise an IllegalStateException if the reply is
    * malformed.
    */
  def pieces(batch: ArrowRecordBatch): Seq[Piece] = {
    val buffers = batch.getBuffers
    val rows = batch.getLength
    check(
      buffers.size == BufferCount && batch.getNodes.size == schema.getFields.size,
      "has other columns"
    )
    val (numbers, validity, offsets) = (buffers.get(1), buffers.get(2), buffers.get(3))
    val (data, read) = (buffers.get(4), buffers.get(6))
    val hasNulls = batch.getNodes.get(1).getNullCount > 0
    check(
      rows >= 0 && holds(numbers, rows * 4L) && holds(read, rows * 8L) &&
        (rows == 0 || holds(offsets, rows * 4L + 4)) && (!hasNulls || holds(
          validity,
          (rows + 7L) / 8
        )),
      s"is too short for $rows rows"
    )
    (0 until rows).map { row =>
      val start = offsets.getInt(row * 4L)
      val end = offsets.getInt(row * 4L + 4)
      val isNull = hasNulls && (validity.getByte(row / 8L) >> (row % 8) & 1) == 0
      check(
        start >= 0 && start <= end && holds(data, end.toLong),
        s"has a value from $start to $end"
      )
      Piece(
        numbers.getInt(row * 4L),
        if (isNull) None else Some(data.nioBuffer(start.toLong, end - start)),
        read.getLong(row * 8L)
      )
    }
  }

  private def holds(buffer: ArrowBuf, sizeBytes: Long): Boolean =
    buffer.readableBytes() >= sizeBytes

  private def check(isRight: Boolean, problem: String): Unit = if (!isRight) {
    throw new IllegalStateException(s"a reply of the worker exchange $problem")
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
