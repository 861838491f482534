// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.sql.catalyst.expressions.{Attribute, PythonUDF}
import org.apache.spark.sql.catalyst.plans.logical._

/** Extractor for mapInPandas and mapInArrow: the function, the output, the child, whether the stage
  * is a barrier stage, and whether it has a resource profile.
  */
object MapInBatch {
  def unapply(
      plan: LogicalPlan
  ): Option[(PythonUDF, Seq[Attribute], LogicalPlan, Boolean, Boolean)] = plan match {
    case MapInArrow(function: PythonUDF, output, child, isBarrier, profile) =>
      Some((function, output, child, isBarrier, profile.isDefined))
    case MapInPandas(function: PythonUDF, output, child, isBarrier, profile) =>
      Some((function, output, child, isBarrier, profile.isDefined))
    case _ => None
  }
}

/** Extractor for a grouped applyInArrow: the keys, the function, the output and the child. */
object MapGroupsInArrow {
  def unapply(
      plan: LogicalPlan
  ): Option[(Seq[Attribute], PythonUDF, Seq[Attribute], LogicalPlan)] = plan match {
    case FlatMapGroupsInArrow(keys, function: PythonUDF, output, child) =>
      Some((keys, function, output, child))
    case _ => None
  }
}

/** Extractor for a cogrouped applyInArrow: the keys of both sides, the function, the output and the
  * sides.
  */
object MapCogroupsInArrow {
  def unapply(plan: LogicalPlan): Option[
    (Seq[Attribute], Seq[Attribute], PythonUDF, Seq[Attribute], LogicalPlan, LogicalPlan)
  ] = plan match {
    case node @ FlatMapCoGroupsInArrow(_, _, function: PythonUDF, output, left, right) =>
      Some((node.leftAttributes, node.rightAttributes, function, output, left, right))
    case _ => None
  }
}
