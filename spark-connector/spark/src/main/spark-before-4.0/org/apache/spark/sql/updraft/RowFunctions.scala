// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.sql.catalyst.expressions.{Attribute, PythonUDF}
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, MapInPandas, PythonMapInArrow}

/** Extractor for mapInPandas and mapInArrow: the function, the output, the child, whether the stage
  * is a barrier stage, and whether it has a resource profile, which is always false in Spark 3.5.
  */
object MapInBatch {
  def unapply(
      plan: LogicalPlan
  ): Option[(PythonUDF, Seq[Attribute], LogicalPlan, Boolean, Boolean)] = plan match {
    case PythonMapInArrow(function: PythonUDF, output, child, isBarrier) =>
      Some((function, output, child, isBarrier, false))
    case MapInPandas(function: PythonUDF, output, child, isBarrier) =>
      Some((function, output, child, isBarrier, false))
    case _ => None
  }
}

/** Extractor for a grouped applyInArrow, which Spark 3.5 does not have. */
object MapGroupsInArrow {
  def unapply(
      plan: LogicalPlan
  ): Option[(Seq[Attribute], PythonUDF, Seq[Attribute], LogicalPlan)] = None
}

/** Extractor for a cogrouped applyInArrow, which Spark 3.5 does not have. */
object MapCogroupsInArrow {
  def unapply(plan: LogicalPlan): Option[
    (Seq[Attribute], Seq[Attribute], PythonUDF, Seq[Attribute], LogicalPlan, LogicalPlan)
  ] = None
}
