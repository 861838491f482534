// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.columns

/** Limits that decide where a request batch ends.
  *
  * A slice is the rows that the function sees at once
  * (`spark.sql.execution.arrow.maxRecordsPerBatch` rows). A batch is a whole number of slices, so
  * that the function sees the same slices as on stock Spark. The first batch is one slice, and each
  * following batch may have twice as many slices as the batch before. So the pool starts early, and
  * a query with LIMIT reads few rows. A batch ends inside a slice only if that slice is too large
  * for a batch.
  *
  * @param sliceRows
  *   rows that the function sees at once
  * @param sliceBytes
  *   maximum bytes of arguments that the function sees at once
  *   (`spark.sql.execution.arrow.maxBytesPerBatch`). This limit applies even if the function then
  *   sees fewer than `sliceRows` rows
  * @param requestBytes
  *   target for the bytes of arguments in a batch; at most `sliceBytes`
  * @param heldBytes
  *   limit on the bytes of all columns of a batch, including pass-through columns
  * @param ceilingBytes
  *   bytes of all columns at which a batch ends even inside a slice
  */
final case class BatchLimits(
    sliceRows: Int,
    sliceBytes: Long,
    requestBytes: Long,
    heldBytes: Long,
    ceilingBytes: Long
) {

  /** Return whether a batch of this size must end, even inside a slice. */
  def areReachedBy(size: BatchSize): Boolean =
    size.requestBytes >= sliceBytes || size.heldBytes >= ceilingBytes

  /** Return how many rows may follow before the size must be checked again. The result is at most
    * the current number of rows, and less if further rows of the same size would reach a limit
    * sooner.
    */
  def lookAhead(rows: Int, size: BatchSize): Int = {
    def left(bytes: Long, limit: Long): Long =
      if (bytes == 0) Long.MaxValue else (limit - bytes) * rows / bytes
    val untilReached =
      math.min(left(size.requestBytes, sliceBytes), left(size.heldBytes, ceilingBytes))
    math.max(1L, math.min(untilReached, math.min(rows, BatchLimits.MostRows).toLong)).toInt
  }
}

object BatchLimits {

  /** Maximum number of rows between two checks of a batch's size. */
  val MostRows = 4096

  /** Return limits for batches of this many bytes, without a limit on rows. */
  def of(bytes: Long): BatchLimits = BatchLimits(Int.MaxValue, bytes, bytes, bytes, bytes)
}

/** Size of a batch: the bytes of its arguments, and the bytes of all columns, including columns
  * that stay in the executor.
  */
final case class BatchSize(requestBytes: Long, heldBytes: Long)

/** Decision of where each batch of one task ends. */
final class BatchCut(limits: BatchLimits) {
  private[this] var slicesAllowed = 1L
  private[this] var mostRows = Int.MaxValue
  private[this] var lookAhead = 1

  /** Return how many rows may be appended to a batch with this many rows before [[endsAt]] must be
    * called.
    */
  def room(rows: Int): Int = math.min(lookAhead, limits.sliceRows - rows % limits.sliceRows)

  /** Return whether a batch with this many rows ends here. */
  def endsAt(rows: Int, size: BatchSize): Boolean = rows > 0 && {
    lookAhead = limits.lookAhead(rows, size)
    limits.areReachedBy(size) || endsAtSlice(rows, size)
  }

  private def endsAtSlice(rows: Int, size: BatchSize): Boolean =
    rows % limits.sliceRows == 0 && {
      val slices = rows / limits.sliceRows
      slices >= slicesAllowed || rows >= mostRows ||
      size.requestBytes + size.requestBytes / slices > limits.requestBytes ||
      size.heldBytes + size.heldBytes / slices > limits.heldBytes
    }

  /** Set a limit on the rows of the next batches. A batch still has at least one slice. */
  def setMostRows(rows: Int): Unit = mostRows = rows

  /** Start the next batch. */
  def advance(): Unit = {
    if (slicesAllowed < Int.MaxValue) slicesAllowed *= 2
    lookAhead = 1
  }
}
