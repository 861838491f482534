// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write.delta

import org.apache.hadoop.conf.Configuration
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.delta.actions.{Metadata, Protocol}
import org.apache.spark.sql.delta.stats.DeltaJobStatisticsTracker
import org.apache.spark.sql.delta.{
  NoOpTransactionExecutionObserver,
  OptimisticTransaction,
  TransactionExecutionObserver
}
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.datasources.FileFormat
import org.apache.spark.sql.updraft.SparkInternals
import org.slf4j.LoggerFactory

import io.updraft.spark.config.WriteConf
import io.updraft.spark.write.{SmallWrite, WriterInput}

/** Observer of Delta's transactions. In sessions that write Delta tables through a writer, it
  * replaces each new transaction with one whose data files have the format [[DeltaFiles]].
  */
final class DeltaTransactions extends TransactionExecutionObserver {

  override def createChild(): TransactionExecutionObserver = this

  override def startingTransaction(f: => OptimisticTransaction): OptimisticTransaction = {
    val begun = f
    if (WriteConf.writesTables(SparkInternals.conf(SparkSession.active), "delta"))
      try new FormatTransaction(begun, DeltaTransactions.Hooks)
      catch {
        // This application's Delta has a supported version, but its classes differ from those of
        // the public release.
        case error: LinkageError =>
          DeltaTransactions.log.warn(
            s"delta: Delta's own writer makes data files, because of $error"
          )
          begun
      }
    else begun
  }

  override def preparingCommit[T](f: => T): T = f
  override def beginDoCommit(): Unit = ()
  override def beginBackfill(): Unit = ()
  override def beginPostCommit(): Unit = ()
  override def transactionCommitted(): Unit = ()
  override def transactionAborted(): Unit = ()
}

object DeltaTransactions {
  private val log = LoggerFactory.getLogger(getClass)

  private object Hooks extends DataFileHooks {

    override def format(
        protocol: Protocol,
        table: Metadata,
        small: Option[String]
    ): FileFormat = new DeltaFiles(protocol, table, small)

    override def smallReason(rows: SparkPlan): Option[String] =
      SmallWrite.reason(rows.conf, rows)

    override def input(rows: SparkPlan, takesBatches: Boolean): SparkPlan =
      if (takesBatches) WriterInput.of(rows) else WriterInput.ofRows(rows)

    override def statistics(
        conf: Configuration,
        stock: DeltaJobStatisticsTracker,
        written: Runnable
    ): DeltaJobStatisticsTracker = new ReceiptStatistics(conf, stock, written)
  }

  /** Created once, so that a Delta with a different class is detected before a transaction begins.
    */
  private lazy val probe = new DeltaFiles(Protocol(), Metadata(), None)

  /** Observe the transactions that this thread starts, unless another observer is already set.
    * Return why the connector does not support this version of Delta; None if it does.
    */
  def observe(): Option[String] = {
    val reason = DeltaRules.versionReason(io.delta.VERSION)
    if (
      reason.isEmpty && probe != null &&
      (TransactionExecutionObserver.getObserver eq NoOpTransactionExecutionObserver)
    ) TransactionExecutionObserver.setObserver(new DeltaTransactions)
    reason
  }
}
