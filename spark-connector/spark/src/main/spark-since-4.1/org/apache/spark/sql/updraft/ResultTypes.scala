// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.sql.errors.QueryExecutionErrors
import org.apache.spark.sql.types.{DataType, TimeType}

/** Checks of result types: the time-of-day type, introduced in Spark 4.1, and the error that Spark
  * raises if results do not fit.
  */
object ResultTypes {

  def isTime(dataType: DataType): Boolean = dataType.isInstanceOf[TimeType]

  def mismatch(operation: String, declared: Seq[DataType], actual: Seq[DataType]): Throwable =
    QueryExecutionErrors.arrowDataTypeMismatchError(operation, declared, actual)
}
