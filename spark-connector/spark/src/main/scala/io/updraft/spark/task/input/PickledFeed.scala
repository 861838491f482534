// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.input

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.MutableProjection
import org.apache.spark.sql.updraft.{InputFiles, PickledRows}

import io.updraft.spark.columns.{BinaryBuilder, ColumnSet}

/** How rows are pickled.
  *
  * @param listRows
  *   rows of one pickled list
  * @param binaryAsBytes
  *   whether binary values become bytes, or bytearray as before Spark 4.1
  */
final case class Pickling(listRows: Int, binaryAsBytes: Boolean)

/** Makes requests of pickled lists; the rows themselves are kept as columns, in step with the
  * lists.
  *
  * The first request is small and each may hold twice as much as the one before, so that the pool
  * starts early; none is large, since Python works on a row for longer than the row travels.
  */
final class PickledFeed(
    input: Iterator[InternalRow],
    spec: RequestSpec,
    pickling: Pickling,
    files: InputFiles,
    partition: Int
) extends RequestSource {
  private[this] val passed = spec.columnSet(spec.passedTypes, spec.passed)
  private[this] val lists = new BinaryBuilder(offsetWidth = 4)
  private[this] val projection = MutableProjection.create(spec.inputs, spec.child)
  private[this] val pickled = PickledRows.of(
    input.map(keepAndProject),
    spec.inputType,
    pickling.listRows,
    pickling.binaryAsBytes
  )
  private[this] var file: AnyRef = _
  private[this] var lastFile: AnyRef = _
  private[this] val laterFiles = Seq.newBuilder[LaterFile]
  private[this] var rows = 0
  private[this] var values = 0
  private[this] var aimBytes = math.min(PickledFeed.FirstBytes, spec.limits.requestBytes)

  projection.initialize(partition)

  private def keepAndProject(row: InternalRow): InternalRow = {
    passed.append(row)
    note(files.current)
    rows += 1
    projection(row)
  }

  /** Lists are cut by rows, as PySpark's worker cuts its results: one may hold rows of several
    * files.
    */
  private def note(current: AnyRef): Unit = {
    if (rows == 0) file = current
    else if (!current.eq(lastFile)) laterFiles += LaterFile(rows, current)
    lastFile = current
  }

  override def next(): Option[Request] = {
    files.ofChild(fill())
    if (values > 0) Some(finish()) else None
  }

  /** Asking whether there is another list reads its rows, so a full batch must not ask. */
  private def fill(): Unit = {
    var open = true
    while (open && pickled.hasNext) {
      lists.put(pickled.next())
      values += 1
      open = !isFull
    }
  }

  private def isFull: Boolean = {
    passed.measure()
    lists.byteCount >= aimBytes ||
    passed.byteCount(_ => true) >= spec.limits.heldBytes
  }

  private def finish(): Request = {
    aimBytes =
      math.min(aimBytes * 2, math.min(PickledFeed.MostBytes, spec.limits.requestBytes))
    val list = lists.finish()
    try {
      val batch = ColumnSet.recordBatch(values, Seq(list))
      Request(batch, Kept(rows, values, passed.load(rows), file, laterFiles.result()))
    } finally {
      list.close()
      laterFiles.clear()
      rows = 0
      values = 0
    }
  }

  override def close(): Unit = {
    lists.close()
    passed.close()
  }
}

object PickledFeed {

  /** Bytes of lists that the first request aims at. */
  val FirstBytes: Long = 16L << 10

  /** Bytes of lists that a request aims at where the settings let it be larger. */
  val MostBytes: Long = 256L << 10
}
