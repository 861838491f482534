// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.sql.types.DataType

/** Checks of result types for Spark 4.0, which has no time-of-day type and asserts that results
  * fit.
  */
object ResultTypes {

  def isTime(dataType: DataType): Boolean = false

  def mismatch(operation: String, declared: Seq[DataType], actual: Seq[DataType]): Throwable =
    new AssertionError(
      s"assertion failed: Invalid schema from $operation: expected ${declared.mkString(", ")}, " +
        s"got ${actual.mkString(", ")}"
    )
}
