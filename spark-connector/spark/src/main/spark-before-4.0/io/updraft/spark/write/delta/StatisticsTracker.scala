// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write.delta

import org.apache.hadoop.conf.Configuration
import org.apache.spark.sql.catalyst.expressions.Expression
import org.apache.spark.sql.delta.stats.DeltaJobStatisticsTracker

/** Tracker of data files' statistics that replaces another tracker. */
abstract class StatisticsTracker(conf: Configuration, stock: DeltaJobStatisticsTracker)
    extends DeltaJobStatisticsTracker(conf, stock.path, stock.dataCols, stock.statsColExpr) {

  /** Return Delta's expression for the statistics of a file, which tasks of Delta 3.3 evaluate
    * unchanged.
    */
  protected def evaluated: Expression = statsColExpr
}
