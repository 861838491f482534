// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.input

import java.util.Arrays

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.updraft.DistinctTuples
import org.apache.spark.sql.vectorized.{ColumnVector, ColumnarBatch}

import io.updraft.spark.columns.RepeatedColumn
import io.updraft.spark.task.once.{CallOnce, KnownResults, RepeatWatch, Repeats}

/** Buffer for requests that sends each tuple of arguments only once in a task. A request without
  * new tuples is sent without rows. Replies arrive in order, so the results of its tuples arrive
  * before its own reply.
  *
  * When the search for repeats ends, the remaining rows go to `direct`.
  */
final class OnceBuffer(
    spec: RequestSpec,
    partition: Int,
    once: CallOnce,
    sent: SentTuples,
    direct: RequestBuffer,
    context: TaskContext
) extends RequestBuffer {
  private[this] val distinct = new DistinctBuffer(spec, partition, sent, context)
  private[this] val watch = new RepeatWatch(once)
  private[this] var search = Search.Going

  private def current: RequestBuffer = if (search == Search.Over) direct else distinct

  override def rows: Int = current.rows

  override def room: Int = current.room

  override def append(batch: ColumnarBatch, from: Int, rows: Int): Unit =
    current.append(batch, from, rows)

  override def append(row: InternalRow): Unit = current.append(row)

  override def isFull: Boolean = {
    if (search == Search.Going && !watch.continues(distinct.rowsEver, distinct.callsEver))
      search = Search.Ending
    search == Search.Ending || current.isFull
  }

  override def finish(inputFile: AnyRef): Request = {
    val request = current.finish(inputFile)
    if (search == Search.Ending) {
      search = Search.Over
      distinct.close()
    }
    request
  }

  override def setMostRows(rows: Int): Unit = current.setMostRows(rows)

  /** Forget the tuples now, because a coalesced task has such a buffer for each partition. */
  override def inputEnded(): Unit = distinct.close()

  override def close(): Unit = {
    distinct.close()
    direct.close()
  }
}

/** State of a task's search for repeats: the search continues, ends with this request, or is over.
  */
private object Search extends Enumeration {
  val Going, Ending, Over = Value
}

/** Buffer that sends each tuple once and keeps the places of all rows' results. */
private final class DistinctBuffer(
    spec: RequestSpec,
    partition: Int,
    sent: SentTuples,
    context: TaskContext
) extends TupleBuffer(spec, partition, sent) {
  private[this] val tuples = new DistinctTuples(context)
  private[this] var known = new KnownResults
  private[this] var places = new Array[Long](DistinctBuffer.FirstRows)
  private[this] var row = 0
  private[this] var calls = 0
  private[this] var pastRows = 0L
  private[this] var pastCalls = 0L

  /** Return how many rows all requests so far contain. */
  def rowsEver: Long = pastRows + row

  /** Return how many calls all requests so far need. */
  def callsEver: Long = pastCalls + calls

  override protected def take(tuple: UnsafeRow): Unit = {
    if (row == places.length) places = Arrays.copyOf(places, row * 2)
    val next = RepeatedColumn.place(known.next, calls)
    val place = tuples.placeOf(tuple, next)
    places(row) = place
    row += 1
    if (place == next) {
      sent.append(tuple)
      calls += 1
    }
  }

  override protected def heldBytes: Long = row * 8L

  override protected def retained(
      rows: Int,
      values: Int,
      columns: Array[ColumnVector],
      inputFile: AnyRef
  ): RetainedRows = {
    val repeats = new Repeats(known, Arrays.copyOf(places, row), calls)
    if (calls > 0) known.announce()
    pastRows += row
    pastCalls += calls
    row = 0
    calls = 0
    if (tuples.isFull || tuples.bytes + known.bytes > DistinctBuffer.MostBytes) startAnew()
    RetainedRows(rows, values, columns, inputFile, repeats = Some(repeats))
  }

  private def startAnew(): Unit = {
    tuples.close()
    known.release()
    known = new KnownResults
  }

  override def close(): Unit = {
    startAnew()
    super.close()
  }
}

private object DistinctBuffer {
  val FirstRows = 1024

  /** Limit on the bytes of the tuples that a task remembers and of their results. Beyond this
    * limit, the task forgets all tuples and starts over.
    */
  val MostBytes: Long = 32L << 20
}
