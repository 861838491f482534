// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write.delta

import scala.util.control.NonFatal

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.plans.logical.{Command, LogicalPlan}
import org.apache.spark.sql.catalyst.trees.TreeNodeTag
import org.apache.spark.sql.execution.{SparkPlan, SparkStrategy}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.updraft.SparkInternals
import org.slf4j.LoggerFactory

import io.updraft.spark.config.WriteConf

/** Planner strategy that prepares the planning thread to write Delta tables through a writer,
  * because the same thread then runs the query's command. If Delta makes the files of a command
  * anyway, the strategy plans an operator above the command that shows the reason. Spark plans
  * everything else.
  */
case class TableWrites(session: SparkSession) extends SparkStrategy {
  import TableWrites.Explained

  override def apply(plan: LogicalPlan): Seq[SparkPlan] =
    if (WriteConf.mayWriteTables(SparkInternals.conf(session), "delta")) {
      TableWrites.prepareDelta()
      plan match {
        case command: Command if command.getTagValue(Explained).isEmpty =>
          TableWrites.reason(SparkInternals.conf(session), command).toSeq.map { reason =>
            // Mark the command, because adaptive execution plans it again.
            command.setTagValue(Explained, ())
            FilesByDeltaExec(reason, planLater(command))
          }
        case _ => Nil
      }
    } else Nil
}

object TableWrites {
  private val log = LoggerFactory.getLogger(getClass)

  /** Mark of a command that already has an operator above it. */
  private val Explained = TreeNodeTag[Unit]("updraft.filesByDelta")

  private val DeltaClass = "org.apache.spark.sql.delta.TransactionExecutionObserver"

  /** False if Delta is missing or the connector does not support its version. */
  @volatile private var knowsDelta = true

  private def prepareDelta(): Unit =
    if (knowsDelta) observe().foreach { reason =>
      knowsDelta = false
      log.warn(s"delta: Delta's own writer makes data files, because of $reason")
    }

  /** Return why Delta makes the files of a command; None if a writer makes them, or if the reason
    * is unknown.
    */
  private def reason(conf: SQLConf, command: Command): Option[String] =
    if (knowsDelta)
      try FilesByDelta.reason(conf, command)
      catch {
        // A failed explanation must not fail the command, even if this build of Delta lacks a
        // class.
        case error @ (_: LinkageError | NonFatal(_)) =>
          log.debug("delta: cannot tell who makes the data files", error)
          None
      }
    else None

  private def observe(): Option[String] =
    try {
      Class.forName(DeltaClass)
      DeltaTransactions.observe()
    } catch {
      case error @ (_: ClassNotFoundException | _: LinkageError) => Some(error.toString)
    }
}
