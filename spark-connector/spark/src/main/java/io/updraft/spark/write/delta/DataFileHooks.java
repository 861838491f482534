// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write.delta;

import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.delta.actions.Metadata;
import org.apache.spark.sql.delta.actions.Protocol;
import org.apache.spark.sql.delta.stats.DeltaJobStatisticsTracker;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.FileFormat;
import scala.Option;

/** Parts of a Delta transaction that {@link FormatTransaction} replaces. */
public interface DataFileHooks {

  /**
   * Return the format of a table's data files.
   *
   * @param small result of {@link #smallReason}
   */
  FileFormat format(Protocol protocol, Metadata table, Option<String> small);

  /** Return why a write of these rows is too small for the writer; None if it is not. */
  Option<String> smallReason(SparkPlan rows);

  /**
   * Return a plan of the same rows that passes whole batches to the files if possible.
   *
   * @param takesBatches true if no step between this plan and the files needs single rows
   */
  SparkPlan input(SparkPlan rows, boolean takesBatches);

  /**
   * Return the tracker of data files' statistics that replaces Delta's own.
   *
   * @param written called on the driver when all files are written
   */
  DeltaJobStatisticsTracker statistics(
      Configuration conf, DeltaJobStatisticsTracker stock, Runnable written);
}
