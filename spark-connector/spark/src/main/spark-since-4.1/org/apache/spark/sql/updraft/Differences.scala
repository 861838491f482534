// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.sql.SaveMode
import org.apache.spark.sql.catalyst.catalog.CatalogTable
import org.apache.spark.sql.catalyst.expressions.PythonUDTF
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.errors.QueryExecutionErrors
import org.apache.spark.sql.execution.command.SaveAsV1TableCommand
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.{DataType, TimeType}

/** PySpark settings introduced in Spark 4.1. */
object PythonConf {

  def binaryAsBytes(conf: SQLConf): Boolean = conf.pysparkBinaryAsBytes

  /** Return the extra arguments of Spark's pickling of rows. */
  def picklingArguments(binaryAsBytes: Boolean): Seq[AnyRef] = Seq(Boolean.box(binaryAsBytes))

  def validatesSchema(conf: SQLConf): Boolean = conf.pysparkArrowValidateSchema

  def collectsWorkerLogs(conf: SQLConf): Boolean = conf.pythonWorkerLoggingEnabled

  /** Return the row limit of a batch of results; 0 means no limit. */
  def outputBatchRows(conf: SQLConf): Int = math.max(conf.arrowMaxRecordsPerOutputBatch, 0)

  def outputBatchBytes(conf: SQLConf): Long = math.max(conf.arrowMaxBytesPerOutputBatch, 0)

  /** Return the idle time after which a worker is killed; 0 means never. */
  def idleTimeoutSeconds(conf: SQLConf): Long =
    if (conf.pythonUDFWorkerKillOnIdleTimeout) conf.pythonUDFWorkerIdleTimeoutSeconds else 0

  def tracebackDumpSeconds(conf: SQLConf): Long = conf.pythonUDFWorkerTracebackDumpIntervalSeconds
}

/** Flags that say which arguments of a table function are tables. The flags are for Arrow table
  * functions, which Spark has since 4.1.
  */
object TableArguments {

  def of(udtf: PythonUDTF): Seq[Boolean] = udtf.tableArguments.getOrElse(Seq.empty)
}

/** Checks of result types. They cover the time-of-day type, introduced in Spark 4.1, and the error
  * that Spark raises if results do not fit.
  */
object ResultTypes {

  def isTime(dataType: DataType): Boolean = dataType.isInstanceOf[TimeType]

  def mismatch(operation: String, declared: Seq[DataType], actual: Seq[DataType]): Throwable =
    QueryExecutionErrors.arrowDataTypeMismatchError(operation, declared, actual)
}

/** Extractor for the command of `saveAsTable`, which Spark has since 4.1. */
object SaveAsTable {
  def unapply(plan: LogicalPlan): Option[(CatalogTable, SaveMode, LogicalPlan)] = plan match {
    case SaveAsV1TableCommand(table, mode, query) => Some((table, mode, query))
    case _ => None
  }
}
