// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.columns

/** Where a request batch ends.
  *
  * A batch is a whole number of slices, where a slice is what the function sees at once
  * (`spark.sql.execution.arrow.maxRecordsPerBatch` rows), so that slicing on the pool gives the
  * batches that stock gives. The first batch is one slice and each may be twice the one before, so
  * that the pool starts early and a LIMIT reads little. Only a slice that is too large for a batch
  * is cut inside.
  *
  * @param sliceRows
  *   rows that the function sees at once
  * @param sliceBytes
  *   bytes of arguments that the function sees at once
  *   (`spark.sql.execution.arrow.maxBytesPerBatch`), where that is fewer rows
  * @param requestBytes
  *   bytes of arguments to aim at, no more than `sliceBytes`
  * @param heldBytes
  *   bytes of all columns, pass-through included, that a batch holds at most
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

  /** Whether a batch ends even inside a slice. */
  def areReachedBy(size: BatchSize): Boolean =
    size.requestBytes >= sliceBytes || size.heldBytes >= ceilingBytes

  /** Rows that may follow before the size must be looked at again: as many as there are, and fewer
    * where such rows would reach a limit.
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

  /** Rows after which the size of a batch is looked at, at the most. */
  val MostRows = 4096

  /** Batches of so many bytes, where nobody counts their rows. */
  def of(bytes: Long): BatchLimits = BatchLimits(Int.MaxValue, bytes, bytes, bytes, bytes)
}

/** Bytes of a batch: of its arguments, and of all columns with those that stay here. */
final case class BatchSize(requestBytes: Long, heldBytes: Long)

/** Decides for one task, batch by batch. */
final class BatchCut(limits: BatchLimits) {
  private[this] var slicesAllowed = 1L
  private[this] var lookAhead = 1

  /** Rows that may be appended to so many before [[endsAt]] must be asked. */
  def room(rows: Int): Int = math.min(lookAhead, limits.sliceRows - rows % limits.sliceRows)

  /** Whether a batch of so many rows ends here. */
  def endsAt(rows: Int, size: BatchSize): Boolean = rows > 0 && {
    lookAhead = limits.lookAhead(rows, size)
    limits.areReachedBy(size) || endsAtSlice(rows, size)
  }

  private def endsAtSlice(rows: Int, size: BatchSize): Boolean =
    rows % limits.sliceRows == 0 && {
      val slices = rows / limits.sliceRows
      slices >= slicesAllowed ||
      size.requestBytes + size.requestBytes / slices > limits.requestBytes ||
      size.heldBytes + size.heldBytes / slices > limits.heldBytes
    }

  /** A batch was cut. */
  def advance(): Unit = {
    if (slicesAllowed < Int.MaxValue) slicesAllowed *= 2
    lookAhead = 1
  }
}
