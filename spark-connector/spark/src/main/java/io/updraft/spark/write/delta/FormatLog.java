// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write.delta;

import java.util.function.BiFunction;
import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.actions.Metadata;
import org.apache.spark.sql.delta.actions.Protocol;
import org.apache.spark.sql.execution.datasources.FileFormat;

/**
 * Delta's log of a table, with another file format. Only the writing of data files uses it; Delta's
 * own log of the table stays the one that reads and commits.
 *
 * <p>It is written in Java, because Scala hides the constructor of Delta's class.
 */
final class FormatLog extends DeltaLog {
  private final BiFunction<Protocol, Metadata, FileFormat> format;

  FormatLog(DeltaLog log, BiFunction<Protocol, Metadata, FileFormat> format) {
    super(
        log.logPath(),
        log.dataPath(),
        log.options(),
        log.allOptions(),
        log.clock(),
        log.initialCatalogTable());
    this.format = format;
  }

  @Override
  public FileFormat fileFormat(Protocol protocol, Metadata metadata) {
    return format.apply(protocol, metadata);
  }
}
