// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.SparkPlan

/** Local Spark without Python, for tests of code that runs inside a task. */
object LocalSpark {

  /** Run `body` with a session whose tasks have small pages and fail if they leak memory. */
  def apply[T](pageBytes: Long, confs: (String, String)*)(body: SparkSession => T): T = {
    val builder = SparkSession.builder()
      .master("local[1]")
      .config("spark.ui.enabled", "false")
      .config("spark.driver.host", "127.0.0.1")
      .config("spark.driver.bindAddress", "127.0.0.1")
      .config("spark.buffer.pageSize", pageBytes.toString)
      .config("spark.unsafe.exceptionOnMemoryLeak", "true")
    val session = confs.foldLeft(builder) { case (b, (key, value)) => b.config(key, value) }
      .getOrCreate()
    try body(session)
    finally session.stop()
  }

  /** Return the rows that `change` makes of a plan's only partition, each as Scala values. */
  def rows(plan: SparkPlan)(change: Iterator[InternalRow] => Iterator[InternalRow])
      : Seq[Seq[Any]] = {
    val types = plan.output.map(_.dataType)
    SparkInternals
      .mapPartitions(plan.execute())((_, rows) => change(rows).map(_.toSeq(types)))
      .collect()
      .toSeq
  }
}
