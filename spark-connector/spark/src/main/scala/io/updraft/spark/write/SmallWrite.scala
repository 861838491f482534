// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write

import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec
import org.apache.spark.sql.execution.columnar.InMemoryRelation
import org.apache.spark.sql.execution.{LogicalRDD, SparkPlan}
import org.apache.spark.sql.internal.SQLConf

import io.updraft.spark.config.WriteConf

/** Rule for table writes that are too small to benefit from the writer. */
object SmallWrite {

  /** Return why the table format's own writer makes the files of these rows; None if Spark's
    * estimate of the rows' size is large, or if the estimate may be far too small.
    *
    * @param options
    *   options of the write, which take precedence over the session's settings
    */
  def reason(
      conf: SQLConf,
      query: LogicalPlan,
      options: Map[String, String] = Map.empty
  ): Option[String] = {
    val limit = WriteConf.smallWriteBytes.require(WriteConf.lookup(conf, options))
    if (limit > 0 && isBounded(query) && query.stats.sizeInBytes < limit)
      Some(
        s"the planned size of ${query.stats.sizeInBytes} bytes, " +
          s"less than ${WriteConf.smallWriteBytes.key} = $limit"
      )
    else None
  }

  /** Return the same reason for a planned query. */
  def reason(conf: SQLConf, plan: SparkPlan): Option[String] =
    logical(plan).flatMap(reason(conf, _))

  private def logical(plan: SparkPlan): Option[LogicalPlan] = plan match {
    case adaptive: AdaptiveSparkPlanExec => logical(adaptive.inputPlan)
    // Operators that Spark adds at the end of planning have no logical plan.
    case other => other.find(_.logicalLink.isDefined).flatMap(_.logicalLink)
  }

  /** Return whether the query cannot return many more rows than Spark estimates. Generators and
    * functions that map rows to rows may return any number of rows. An RDD, or a cache that is not
    * filled yet, may contain such functions, too.
    */
  private def isBounded(query: LogicalPlan): Boolean = !query.exists {
    case _: LogicalRDD => true
    case cached: InMemoryRelation => !cached.cacheBuilder.isCachedColumnBuffersLoaded
    case _: LeafNode | _: Project | _: Filter | _: Aggregate | _: Sort | _: GlobalLimit |
        _: LocalLimit | _: Union | _: Join | _: RepartitionOperation | _: RebalancePartitions | _: Window =>
      false
    case _ => true
  }
}
