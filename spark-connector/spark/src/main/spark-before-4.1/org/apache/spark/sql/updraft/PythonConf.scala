// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.sql.internal.SQLConf

/** PySpark settings introduced in Spark 4.1, with the values that match the behaviour of 4.0. */
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
