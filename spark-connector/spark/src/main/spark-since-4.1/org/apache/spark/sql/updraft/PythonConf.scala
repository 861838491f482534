// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.sql.internal.SQLConf

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
