// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.exchange

import org.apache.arrow.memory.BufferAllocator
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.MutableProjection
import org.apache.spark.sql.updraft.{InputFiles, PickledRows}

import io.updraft.spark.columns.{BinaryBuilder, ColumnSet}

/** Makes requests of pickled lists; the rows themselves are kept as columns, in step with the
  * lists.
  */
final class PickledFeed(
    input: Iterator[InternalRow],
    spec: RequestSpec,
    pickling: Pickling,
    files: InputFiles,
    allocator: BufferAllocator,
    partition: Int
) extends RequestSource {
  private[this] val passedSchema = spec.passedSchema
  private[this] val passed = new ColumnSet(
    spec.passedTypes,
    passedSchema,
    allocator,
    spec.largeVarTypes,
    spec.passed.toArray
  )
  private[this] val lists = new BinaryBuilder(allocator, offsetWidth = 4)
  private[this] val projection = MutableProjection.create(spec.inputs, spec.child)
  private[this] val pickled = PickledRows.of(
    input.map(keepAndProject),
    spec.inputType,
    pickling.listRows,
    pickling.binaryAsBytes
  )
  private[this] var rows = 0
  private[this] var values = 0

  projection.initialize(partition)

  private def keepAndProject(row: InternalRow): InternalRow = {
    passed.append(row)
    rows += 1
    projection(row)
  }

  override def next(): Option[Request] = {
    files.enterChild()
    val file =
      try fill()
      finally files.leaveChild()
    if (values > 0) Some(finish(file)) else None
  }

  /** Asking whether there is another list reads its rows, so a full batch must not ask. */
  private def fill(): AnyRef = {
    var file: AnyRef = null
    var open = true
    while (open && pickled.hasNext) {
      lists.put(pickled.next())
      values += 1
      if (file == null) file = files.current
      open = !isFull && file.eq(files.current)
    }
    file
  }

  private def isFull: Boolean = {
    passed.measure()
    lists.byteCount >= spec.limits.requestBytes ||
    passed.byteCount(_ => true) >= spec.limits.heldBytes
  }

  private def finish(file: AnyRef): Request = {
    val list = lists.finish()
    val columns = passed.finish()
    val kept = (rows, values)
    rows = 0
    values = 0
    try
      Request(
        ColumnSet.recordBatch(kept._2, Seq(list)),
        Kept(
          kept._1,
          kept._2,
          ColumnSet.load(kept._1, columns, spec.passedTypes, passedSchema, allocator),
          file
        )
      )
    finally {
      list.close()
      columns.foreach(_.close())
    }
  }

  override def close(): Unit = {
    lists.close()
    passed.close()
  }
}
