// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write.delta

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.execution.{SparkPlan, SparkStrategy}
import org.apache.spark.sql.updraft.SparkInternals
import org.slf4j.LoggerFactory

import io.updraft.spark.config.WriteConf

/** Planner strategy that plans nothing. It prepares the thread that plans a query to write tables
  * through a writer, because the same thread then runs the query's command.
  */
case class TableWrites(session: SparkSession) extends SparkStrategy {

  override def apply(plan: LogicalPlan): Seq[SparkPlan] = {
    if (WriteConf.mayWriteTables(SparkInternals.conf(session), "delta")) TableWrites.prepareDelta()
    Nil
  }
}

object TableWrites {
  private val log = LoggerFactory.getLogger(getClass)

  private val DeltaClass = "org.apache.spark.sql.delta.TransactionExecutionObserver"

  /** False if there is no Delta, or one that the connector does not know. */
  @volatile private var knowsDelta = true

  private def prepareDelta(): Unit =
    if (knowsDelta) observe().foreach { reason =>
      knowsDelta = false
      log.warn(s"delta: Delta's own writer makes data files, because of $reason")
    }

  private def observe(): Option[String] =
    try {
      Class.forName(DeltaClass)
      DeltaTransactions.observe()
    } catch {
      case error @ (_: ClassNotFoundException | _: LinkageError) => Some(error.toString)
    }
}
