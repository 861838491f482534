// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write.delta;

import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.DeltaOptions;
import org.apache.spark.sql.delta.OptimisticTransaction;
import org.apache.spark.sql.delta.actions.FileAction;
import org.apache.spark.sql.delta.constraints.Constraint;
import org.apache.spark.sql.delta.files.TransactionalWrite$;
import org.apache.spark.sql.delta.stats.DeltaJobStatisticsTracker;
import org.apache.spark.sql.delta.stats.StatisticsCollection;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.Tuple2;
import scala.collection.immutable.Seq;

/**
 * Delta's transaction, whose data files have another file format. A file's receipt supplies the
 * statistics, and rows come in batches where the plan has them. Everything else, such as schema
 * checks, constraints and the commit, is Delta's.
 *
 * <p>Delta asks the table's log for the format while it writes files. So in the threads that write
 * files, and only as long as they do, the transaction shows them a log with the other format.
 */
public final class FormatTransaction extends OptimisticTransaction {
  private final ThreadLocal<DeltaLog> writing = new ThreadLocal<>();
  // Whether the write of this thread shuffles its rows, so that other tasks write the files.
  private final ThreadLocal<Boolean> shuffles = ThreadLocal.withInitial(() -> false);
  private final ThreadLocal<ShownPlan> shown = new ThreadLocal<>();
  private final DataFileHooks hooks;
  private final FormatLog formatLog;

  /**
   * Create a transaction that begins where another one begins, which must not be used any more.
   *
   * @param begun new transaction of Delta
   * @param hooks parts that replace Delta's
   */
  public FormatTransaction(OptimisticTransaction begun, DataFileHooks hooks) {
    super(begun.deltaLog(), begun.catalogTable(), begun.snapshot());
    this.hooks = hooks;
    this.formatLog = FormatLog.of(super.deltaLog(), hooks::format);
  }

  @Override
  public DeltaLog deltaLog() {
    // Delta's own constructor calls this method, before there are fields.
    DeltaLog shown = writing == null ? null : writing.get();
    return shown == null ? super.deltaLog() : shown;
  }

  @Override
  public Seq<FileAction> writeFiles(
      Dataset<?> data,
      Option<DeltaOptions> options,
      boolean isOptimize,
      Seq<Constraint> constraints) {
    writing.set(formatLog);
    shuffles.set(!isOptimize && isOptimized(options, data.sparkSession().sessionState().conf()));
    try {
      return super.writeFiles(data, options, isOptimize, constraints);
    } finally {
      shown.remove();
      writing.remove();
      shuffles.remove();
    }
  }

  /** Return whether Delta shuffles the rows of a write, to make few files. */
  private boolean isOptimized(Option<DeltaOptions> options, SQLConf conf) {
    Option<Object> asked = options.flatMap(DeltaOptions::optimizeWrite);
    return asked.isDefined()
        ? (Boolean) asked.get()
        : TransactionalWrite$.MODULE$.shouldOptimizeWrite(metadata(), conf);
  }

  @Override
  public SparkPlan convertEmptyToNullIfNeeded(
      SparkPlan plan, Seq<Attribute> partitionColumns, Seq<Constraint> constraints) {
    SparkPlan converted = super.convertEmptyToNullIfNeeded(plan, partitionColumns, constraints);
    if (writing.get() == null || shuffles.get()) {
      return converted;
    }
    boolean takesBatches = partitionColumns.isEmpty() && constraints.isEmpty();
    SparkPlan input = hooks.input(converted, takesBatches);
    shown.set(ShownPlan.of(input));
    showPlan();
    return input;
  }

  private void showPlan() {
    if (shown.get() != null) {
      shown.get().show();
    }
  }

  @Override
  public Tuple2<Option<DeltaJobStatisticsTracker>, Option<StatisticsCollection>>
      getOptionalStatsTrackerAndStatsCollection(
          Seq<Attribute> output, Path directory, StructType partitions, Dataset<Row> data) {
    Tuple2<Option<DeltaJobStatisticsTracker>, Option<StatisticsCollection>> stock =
        super.getOptionalStatsTrackerAndStatsCollection(output, directory, partitions, data);
    return new Tuple2<>(
        // Meanwhile, adaptive execution may have shown the query's plan in place of the write's.
        stock
            ._1()
            .map(
                tracker ->
                    hooks.statistics(deltaLog().newDeltaHadoopConf(), tracker, this::showPlan)),
        stock._2());
  }
}
