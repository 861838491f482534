// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write.delta;

import java.util.function.BiFunction;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.actions.Metadata;
import org.apache.spark.sql.delta.actions.Protocol;
import org.apache.spark.sql.execution.datasources.FileFormat;
import scala.Option;

/**
 * Delta's log of a table, with another file format. Only the code that writes data files uses this
 * log. Reads and commits still go through Delta's own log.
 *
 * <p>This class is written in Java, because Scala hides the constructor of Delta's class.
 */
final class FormatLog extends DeltaLog {
  /**
   * Log that this thread is copying. Delta's own constructor needs the log before it sets the
   * fields of this class.
   */
  private static final ThreadLocal<DeltaLog> COPIED = new ThreadLocal<>();

  private final BiFunction<Protocol, Metadata, FileFormat> format;

  static FormatLog of(
      DeltaLog log, Option<CatalogTable> table, BiFunction<Protocol, Metadata, FileFormat> format) {
    COPIED.set(log);
    try {
      return new FormatLog(log, table, format);
    } finally {
      COPIED.remove();
    }
  }

  private FormatLog(
      DeltaLog log, Option<CatalogTable> table, BiFunction<Protocol, Metadata, FileFormat> format) {
    super(log.logPath(), log.dataPath(), log.options(), log.allOptions(), log.clock(), table);
    this.format = format;
  }

  /** Reuse the snapshot of the copied log, so that Delta does not read the log again. */
  @Override
  public void createSnapshotAtInit(Option<CatalogTable> table) {
    currentSnapshot_$eq(COPIED.get().getCapturedSnapshot());
  }

  @Override
  public FileFormat fileFormat(Protocol protocol, Metadata metadata) {
    return format.apply(protocol, metadata);
  }
}
