// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.once

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnVector}

import io.updraft.spark.columns.RepeatedColumn

/** Results of the tuples of one [[org.apache.spark.sql.updraft.DistinctTuples]], in pieces: one for
  * each request that has tuples. Used on the task's thread. The pieces are released when neither
  * the table nor any request needs them.
  */
final class KnownResults {
  private[this] val pieces = new ArrayBuffer[Array[ColumnVector]]
  private[this] var announced = 0
  private[this] var holders = 1
  private[this] var size = 0L

  /** Return the number of the piece that the next request with tuples adds. */
  def next: Int = announced

  /** Record that a request with tuples was sent. */
  def announce(): Unit = announced += 1

  /** Add the next piece and take ownership of its columns. */
  def add(columns: Array[ColumnVector]): Unit = {
    pieces += columns
    size += columns.iterator.map(KnownResults.bytesOf).sum
  }

  /** Return the bytes of the pieces that have arrived. */
  def bytes: Long = size

  /** Return the results at these places.
    *
    * @param release
    *   called when one of the columns is closed
    */
  def at(places: Array[Long], release: () => Unit): Array[ColumnVector] =
    pieces.head.indices
      .map(column => new RepeatedColumn(pieces.map(_(column)).toArray, places, release))
      .toArray

  def retain(): KnownResults = {
    holders += 1
    this
  }

  /** Release the reference held by the creator or by one [[retain]]. */
  def release(): Unit = {
    holders -= 1
    if (holders == 0) pieces.foreach(_.foreach(_.close()))
  }
}

private object KnownResults {

  /** Return the bytes that a column keeps allocated. A builder's vectors may be larger than their
    * values.
    */
  private def bytesOf(column: ColumnVector): Long = column match {
    case arrow: ArrowColumnVector => arrow.getValueVector.getBuffers(false).map(_.capacity).sum
    case _ => 0
  }
}

/** Places of the results of one request's rows.
  *
  * @param calls
  *   new tuples in the request, for which the pool calls the functions
  */
final class Repeats(known: KnownResults, places: Array[Long], val calls: Int)
    extends AutoCloseable {
  private[this] var open = true

  known.retain()

  /** Return the results of the rows. Closing one of the columns then closes this object.
    *
    * @param read
    *   function that returns the results of the new tuples
    */
  def results(read: => Array[ColumnVector]): Array[ColumnVector] = {
    if (calls > 0) known.add(read)
    known.at(places, () => close())
  }

  override def close(): Unit = if (open) {
    open = false
    known.release()
  }
}
