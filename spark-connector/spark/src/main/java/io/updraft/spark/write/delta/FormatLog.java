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
 * Delta's log of a table, with another file format. Only the code that writes data files uses it.
 * Reads and commits still go through Delta's own log.
 *
 * <p>It is written in Java, because Scala hides the constructor of Delta's class.
 */
final class FormatLog extends DeltaLog {
  /**
   * Log being copied by this thread. Delta's own constructor needs it before this class has fields.
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

  /** Take the other log's snapshot instead of reading the log once more. */
  @Override
  public void createSnapshotAtInit(Option<CatalogTable> table) {
    currentSnapshot_$eq(COPIED.get().getCapturedSnapshot());
  }

  @Override
  public FileFormat fileFormat(Protocol protocol, Metadata metadata) {
    return format.apply(protocol, metadata);
  }
}
