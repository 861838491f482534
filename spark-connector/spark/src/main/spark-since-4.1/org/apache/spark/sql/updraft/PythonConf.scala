// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.sql.internal.SQLConf

/** PySpark's settings that came with Spark 4.1. */
object PythonConf {

  def binaryAsBytes(conf: SQLConf): Boolean = conf.pysparkBinaryAsBytes

  /** What Spark's pickling of rows takes for it. */
  def picklingArguments(binaryAsBytes: Boolean): Seq[AnyRef] = Seq(Boolean.box(binaryAsBytes))

  def validatesSchema(conf: SQLConf): Boolean = conf.pysparkArrowValidateSchema

  def collectsWorkerLogs(conf: SQLConf): Boolean = conf.pythonWorkerLoggingEnabled

  def limitsOutputBatches(conf: SQLConf): Boolean =
    conf.arrowMaxRecordsPerOutputBatch > 0 || conf.arrowMaxBytesPerOutputBatch > 0
}
