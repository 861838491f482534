// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.ExternalAppendOnlyUnsafeRowArray
import org.apache.spark.sql.execution.aggregate.UpdatingSessionsIterator
import org.apache.spark.sql.internal.SQLConf

/** Rows that Spark keeps in memory up to the session's limit of rows. Rows beyond the limit go to
  * disk. These Spark versions have no limit in bytes.
  */
object SpillingRows {
  private def conf: SQLConf = SQLConf.get

  /** Return a container for the rows of one partition of a window. */
  def partition(): ExternalAppendOnlyUnsafeRowArray =
    new ExternalAppendOnlyUnsafeRowArray(
      conf.windowExecBufferInMemoryThreshold,
      conf.windowExecBufferSpillThreshold
    )

  /** Return the rows with sessions. Each window that overlaps others is replaced by the session
    * that spans all of them.
    */
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
