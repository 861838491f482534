// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.ExternalAppendOnlyUnsafeRowArray
import org.apache.spark.sql.execution.aggregate.UpdatingSessionsIterator
import org.apache.spark.sql.internal.SQLConf

/** What Spark keeps in memory up to the session's limit of rows, and on disk beyond: 4.0 has no
  * limit of bytes.
  */
object SpillingRows {
  private def conf: SQLConf = SQLConf.get

  /** Holds the rows of one partition of a window. */
  def partition(): ExternalAppendOnlyUnsafeRowArray =
    new ExternalAppendOnlyUnsafeRowArray(
      conf.windowExecBufferInMemoryThreshold,
      conf.windowExecBufferSpillThreshold
    )

  /** Gives rows whose windows overlap the session that spans them. */
  def inSessions(rows: Iterator[InternalRow], keys: SessionKeys): Iterator[InternalRow] =
    new UpdatingSessionsIterator(
      rows,
      keys.otherKeys,
      keys.session,
      keys.childOutput,
      conf.windowExecBufferInMemoryThreshold,
      conf.windowExecBufferSpillThreshold
    )
}
