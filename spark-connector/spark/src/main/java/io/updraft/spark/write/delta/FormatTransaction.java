// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write.delta;

import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.OptimisticTransaction;

/**
 * Transaction that shows a thread a log with another file format while the thread writes files.
 *
 * <p>This class is written in Java, because Scala does not let a method replace Delta's value.
 */
public final class FormatTransaction extends WritingTransaction {
  private final ThreadLocal<DeltaLog> writing = new ThreadLocal<>();
  private final FormatLog formatLog;

  /**
   * Create a transaction over the same snapshot as {@code begun}. Do not use {@code begun}
   * afterwards.
   *
   * @param begun new transaction of Delta
   * @param hooks parts that replace Delta's
   */
  public FormatTransaction(OptimisticTransaction begun, DataFileHooks hooks) {
    super(begun, hooks);
    this.formatLog = FormatLog.of(super.deltaLog(), super.catalogTable(), this::format);
  }

  @Override
  public DeltaLog deltaLog() {
    // Delta's own constructor calls this method before the fields of this class are set.
    DeltaLog shown = writing == null ? null : writing.get();
    return shown == null ? super.deltaLog() : shown;
  }

  @Override
  public void beginWriting() {
    writing.set(formatLog);
  }

  @Override
  public void endWriting() {
    writing.remove();
  }

  @Override
  public boolean isWriting() {
    return writing.get() != null;
  }
}
