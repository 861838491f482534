// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write.delta;

import java.util.function.BiFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.DeltaOptions;
import org.apache.spark.sql.delta.OptimisticTransaction;
import org.apache.spark.sql.delta.actions.FileAction;
import org.apache.spark.sql.delta.actions.Metadata;
import org.apache.spark.sql.delta.actions.Protocol;
import org.apache.spark.sql.delta.constraints.Constraint;
import org.apache.spark.sql.execution.datasources.FileFormat;
import scala.Option;
import scala.collection.immutable.Seq;

/**
 * Delta's transaction, whose data files have another file format. Everything else, such as schema
 * checks, constraints, statistics and the commit, is Delta's.
 *
 * <p>Delta asks the table's log for the format while it writes files. So in the threads that write
 * files, and only as long as they do, the transaction shows them a log with the other format.
 */
public final class FormatTransaction extends OptimisticTransaction {
  private final ThreadLocal<DeltaLog> writing = new ThreadLocal<>();
  private final FormatLog formatLog;

  /**
   * Create a transaction that begins where another one begins, which must not be used any more.
   *
   * @param begun new transaction of Delta
   * @param format function that returns the format of data files of a table
   */
  public FormatTransaction(
      OptimisticTransaction begun, BiFunction<Protocol, Metadata, FileFormat> format) {
    super(begun.deltaLog(), begun.catalogTable(), begun.snapshot());
    this.formatLog = FormatLog.of(super.deltaLog(), format);
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
    try {
      return super.writeFiles(data, options, isOptimize, constraints);
    } finally {
      writing.remove();
    }
  }
}
