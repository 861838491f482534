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
  * @param requestBytes
  *   bytes of arguments to aim at
  * @param heldBytes
  *   bytes of all columns, pass-through included, that a batch holds at most
  * @param ceilingBytes
  *   bytes at which a batch ends even inside a slice
  */
final case class BatchLimits(
    sliceRows: Int,
    requestBytes: Long,
    heldBytes: Long,
    ceilingBytes: Long
)

/** Bytes of a batch: of its arguments, and of all columns with those that stay here. */
final case class BatchSize(requestBytes: Long, heldBytes: Long)

/** Decides for one task, batch by batch. */
final class BatchCut(limits: BatchLimits) {
  private[this] var slicesAllowed = 1L

  /** Rows until the next place where [[endsAt]] must be asked. */
  def room(rows: Int): Int = limits.sliceRows - rows % limits.sliceRows

  /** Whether a batch that holds this much ends here. */
  def endsAt(rows: Int, requestBytes: Long, heldBytes: Long): Boolean =
    rows > 0 && (heldBytes >= limits.ceilingBytes || endsAtSlice(rows, requestBytes, heldBytes))

  private def endsAtSlice(rows: Int, requestBytes: Long, heldBytes: Long): Boolean =
    rows % limits.sliceRows == 0 && {
      val slices = rows / limits.sliceRows
      slices >= slicesAllowed ||
      requestBytes + requestBytes / slices > limits.requestBytes ||
      heldBytes + heldBytes / slices > limits.heldBytes
    }

  /** A batch was cut. */
  def advance(): Unit = if (slicesAllowed < Int.MaxValue) slicesAllowed *= 2
}
