// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.sql.SaveMode
import org.apache.spark.sql.catalyst.catalog.CatalogTable
import org.apache.spark.sql.catalyst.expressions.PythonUDTF
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.DataType

/** PySpark settings introduced in Spark 4.1, with the values that match the behavior of 4.0. */
object PythonConf {

  def binaryAsBytes(conf: SQLConf): Boolean = false

  /** Return no arguments; binary values are always bytearray. */
  def picklingArguments(binaryAsBytes: Boolean): Seq[AnyRef] = Seq.empty

  def validatesSchema(conf: SQLConf): Boolean = false

  def collectsWorkerLogs(conf: SQLConf): Boolean = false

  def outputBatchRows(conf: SQLConf): Int = 0

  def outputBatchBytes(conf: SQLConf): Long = 0

  def idleTimeoutSeconds(conf: SQLConf): Long = 0

  def tracebackDumpSeconds(conf: SQLConf): Long = 0
}

/** Flags that say which arguments of a table function are tables. Before Spark 4.1, the flags are
  * unknown and not needed.
  */
object TableArguments {

  def of(udtf: PythonUDTF): Seq[Boolean] = Seq.empty
}

/** Checks of result types as before Spark 4.1: there is no time-of-day type, and results that do
  * not fit raise an AssertionError.
  */
object ResultTypes {

  def isTime(dataType: DataType): Boolean = false

  def mismatch(operation: String, declared: Seq[DataType], actual: Seq[DataType]): Throwable =
    new AssertionError(
      s"assertion failed: Invalid schema from $operation: expected ${declared.mkString(", ")}, " +
        s"got ${actual.mkString(", ")}"
    )
}

/** Extractor for the command of `saveAsTable`, which Spark has since 4.1. */
object SaveAsTable {
  def unapply(plan: LogicalPlan): Option[(CatalogTable, SaveMode, LogicalPlan)] = None
}
