// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.input

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.MutableProjection
import org.apache.spark.sql.updraft.{InputFiles, PickledRows}

import io.updraft.spark.columns.{BinaryBuilder, ColumnSet}

/** Options for pickling rows.
  *
  * @param listRows
  *   rows in one pickled list
  * @param binaryAsBytes
  *   true if binary values become bytes; false if they become bytearray, as before Spark 4.1
  */
final case class Pickling(listRows: Int, binaryAsBytes: Boolean)

/** Source of requests that hold pickled lists of rows. In each request, the columns that stay in
  * the executor end at the same row as the lists.
  *
  * The first request is small, and each following request may hold twice as much as the request
  * before, so that the pool starts early. No request has to be large, because Python takes longer
  * to process a row than the transport takes to deliver it.
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
  private[this] var mostRows = Int.MaxValue
  private[this] var aimBytes = math.min(PickledFeed.FirstBytes, spec.limits.requestBytes)

  projection.initialize(partition)

  private def keepAndProject(row: InternalRow): InternalRow = {
    passed.append(row)
    note(files.current)
    rows += 1
    projection(row)
  }

  /** Record the file of the current row. Like PySpark's lists of results, a list has a fixed number
    * of rows, so one list may hold rows of several files.
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

  /** Fill a batch. `pickled.hasNext` reads the rows of the next list, so do not call it when the
    * batch is full.
    */
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
    rows >= mostRows || lists.byteCount >= aimBytes ||
    passed.byteCount(_ => true) >= spec.limits.heldBytes
  }

  private def finish(): Request = {
    aimBytes =
      math.min(aimBytes * 2, math.min(PickledFeed.MostBytes, spec.limits.requestBytes))
    val list = lists.finish()
    try {
      val batch = ColumnSet.recordBatch(values, Seq(list))
      Request(batch, RetainedRows(rows, values, passed.load(rows), file, laterFiles.result()))
    } finally {
      list.close()
      laterFiles.clear()
      rows = 0
      values = 0
    }
  }

  override def setMostRows(rows: Int): Unit = mostRows = rows

  override def close(): Unit = {
    lists.close()
    passed.close()
  }
}

object PickledFeed {

  /** Target size of the first request, in bytes of lists. */
  val FirstBytes: Long = 16L << 10

  /** Maximum target size of a request, in bytes of lists; the settings may require a smaller
    * target.
    */
  val MostBytes: Long = 256L << 10
}
