// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.columns

import scala.collection.mutable.ArrayBuffer
import scala.jdk.CollectionConverters._

import org.apache.arrow.memory.ArrowBuf
import org.apache.arrow.vector.FieldVector
import org.apache.arrow.vector.ipc.message.ArrowFieldNode
import org.apache.arrow.vector.types.pojo.Field
import org.apache.spark.sql.catalyst.expressions.{GenericInternalRow, SpecializedGetters}
import org.apache.spark.sql.updraft.{FieldWriter, SparkInternals}
import org.apache.spark.sql.vectorized.{ColumnVector, ColumnarBatchRow}

/** Builder for types without a builder of their own (nested, variant, null). It uses Spark's own
  * Arrow writers, value by value.
  */
private[columns] final class NestedBuilder(field: Field) extends ColumnBuilder {
  private[this] var vector: FieldVector = _
  private[this] var writer: FieldWriter = _
  private[this] val single = new GenericInternalRow(1)
  private[this] var measuredBytes = 0L

  override def append(source: ColumnVector, from: Int, count: Int): Unit = {
    start()
    val row = new ColumnarBatchRow(Array(source))
    var i = from
    while (i < from + count) {
      row.rowId = i
      writer.write(row, 0)
      i += 1
    }
  }

  override def append(row: SpecializedGetters, ordinal: Int): Unit = {
    start()
    writer.write(row, ordinal)
  }

  /** Append a value in Spark's internal form. */
  def put(value: AnyRef): Unit = {
    single.update(0, value)
    append(single, 0)
  }

  override def putNull(): Unit = put(null)

  private def start(): Unit = if (vector == null) {
    vector = field.createVector(SparkInternals.allocator)
    vector.allocateNew()
    writer = new FieldWriter(vector)
  }

  override def byteCount: Long = measuredBytes

  override def measure(): Unit = if (writer != null) measuredBytes = writer.sizeInBytes

  override def finish(): FilledColumn = {
    start()
    writer.finish()
    val nodes = ArrayBuffer.empty[ArrowFieldNode]
    val buffers = ArrayBuffer.empty[ArrowBuf]
    collect(vector, nodes, buffers)
    buffers.foreach(_.getReferenceManager.retain())
    close()
    new FilledColumn(nodes.toArray, buffers.toArray)
  }

  private def collect(
      part: FieldVector,
      nodes: ArrayBuffer[ArrowFieldNode],
      buffers: ArrayBuffer[ArrowBuf]
  ): Unit = {
    nodes += new ArrowFieldNode(part.getValueCount.toLong, part.getNullCount.toLong)
    buffers ++= part.getFieldBuffers.asScala
    part.getChildrenFromFields.asScala.foreach(collect(_, nodes, buffers))
  }

  override def close(): Unit = {
    if (vector != null) vector.close()
    vector = null
    writer = null
    measuredBytes = 0L
  }
}
