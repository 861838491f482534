// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write.delta

import org.apache.hadoop.fs.Path
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.delta.actions.{FileAction, Metadata, Protocol}
import org.apache.spark.sql.delta.constraints.Constraint
import org.apache.spark.sql.delta.stats.{DeltaJobStatisticsTracker, StatisticsCollection}
import org.apache.spark.sql.delta.{DeltaOptions, OptimisticTransaction}
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.datasources.FileFormat
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.updraft.SparkInternals
import org.apache.spark.sql.{Dataset, Row}

/** Delta transaction whose data files have another file format. The statistics of a file come from
  * its receipt, and the files receive whole batches if the plan returns batches. Everything else,
  * such as schema checks, constraints and the commit, is Delta's. [[FormatTransaction]] is the
  * concrete class.
  *
  * While Delta writes files, it asks the table's log for the format. So while a thread writes
  * files, it sees a log with the other format.
  *
  * @param begun
  *   new transaction of Delta, which must not be used afterwards
  * @param hooks
  *   parts that replace Delta's
  */
abstract class WritingTransaction(begun: OptimisticTransaction, hooks: DataFileHooks)
    extends OpenTransaction(begun) {
  // True if the write of this thread shuffles its rows, so that other tasks write the files.
  private[this] val shuffles = ThreadLocal.withInitial[java.lang.Boolean](() => false)
  private[this] val shown = new ThreadLocal[ShownPlan]
  // Reason why the write of this thread is too small for the writer; None if the write is large
  // enough.
  private[this] val small = ThreadLocal.withInitial[Option[String]](() => None)

  /** Show this thread a log with the other format until [[endWriting]]. */
  def beginWriting(): Unit

  def endWriting(): Unit

  def isWriting: Boolean

  /** Return the format of the files that this thread writes. Delta asks for it after
    * [[convertEmptyToNullIfNeeded]].
    */
  protected final def format(protocol: Protocol, table: Metadata): FileFormat =
    hooks.format(protocol, table, small.get)

  override def writeFiles(
      data: Dataset[_],
      options: Option[DeltaOptions],
      isOptimize: Boolean,
      constraints: Seq[Constraint]
  ): Seq[FileAction] = {
    beginWriting()
    shuffles.set(!isOptimize && isOptimized(options, SparkInternals.conf(data.sparkSession)))
    try super.writeFiles(data, options, isOptimize, constraints)
    finally {
      shown.remove()
      endWriting()
      shuffles.remove()
      small.remove()
    }
  }

  override def convertEmptyToNullIfNeeded(
      plan: SparkPlan,
      partitionColumns: Seq[Attribute],
      constraints: Seq[Constraint]
  ): SparkPlan = {
    val converted = super.convertEmptyToNullIfNeeded(plan, partitionColumns, constraints)
    if (isWriting) small.set(hooks.smallReason(plan))
    if (!isWriting || shuffles.get || small.get.isDefined) converted
    else {
      val input = hooks.input(converted, partitionColumns.isEmpty && constraints.isEmpty)
      shown.set(ShownPlan.of(input))
      showPlan()
      input
    }
  }

  private def showPlan(): Unit = Option(shown.get).foreach(_.show())

  override def getOptionalStatsTrackerAndStatsCollection(
      output: Seq[Attribute],
      directory: Path,
      partitions: StructType,
      data: Dataset[Row]
  ): (Option[DeltaJobStatisticsTracker], Option[StatisticsCollection]) = {
    val (tracker, statistics) =
      super.getOptionalStatsTrackerAndStatsCollection(output, directory, partitions, data)
    // Adaptive execution may have shown the query's plan in place of the write's plan. So show the
    // write's plan again when all files are written.
    val replaced =
      tracker.map(hooks.statistics(deltaLog.newDeltaHadoopConf(), _, () => showPlan()))
    (replaced, statistics)
  }
}
