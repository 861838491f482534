// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.plan

import org.apache.spark.internal.Logging
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.expressions.PythonFuncExpression
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.execution.{SparkPlan, SparkStrategy}
import org.apache.spark.sql.updraft.SparkInternals

import io.updraft.spark.config.{UdfSettings, UnknownNames, UpdraftConf}
import io.updraft.spark.reasons.{PythonNode, Support}
import io.updraft.spark.signing.Signing
import io.updraft.spark.task.groups.RowShape

/** Planner strategy that plans Python functions for the pool. If the pool cannot run a function,
  * Spark's own strategies plan it, and this strategy adds the fallback reason to the plan.
  */
case class UpdraftStrategy(session: SparkSession) extends SparkStrategy with Logging {

  override def apply(plan: LogicalPlan): Seq[SparkPlan] =
    if (RegisteredPlans.calls(plan)) {
      UnknownNames.warnOfSettings(session, plan.conf)
      Seq(RegisteredPlans.planned(plan, planLater))
    } else if (Support.holdsPython(plan)) {
      UnknownNames.warnOfSettings(session, plan.conf)
      UpdraftConf.settings(plan.conf).fold(Seq.empty[SparkPlan])(choose(plan, _))
    } else {
      Nil
    }

  private def choose(plan: LogicalPlan, settings: UdfSettings): Seq[SparkPlan] = {
    val functions = plan.expressions.flatMap(_.collect { case f: PythonFuncExpression => f })
    Support.fallbackReason(plan).orElse(Signing.problem(settings, functions)) match {
      case Some(reason) =>
        StockPythonExec.permit(settings, plan.nodeName, reason)
        stock(plan, reason.toString)
      case None =>
        PoolProbe
          .problem(settings, functions)
          .fold(Seq(onPool(plan, settings)))(reason => stock(plan, reason.toString))
    }
  }

  private def onPool(plan: LogicalPlan, settings: UdfSettings): SparkPlan =
    PythonNode.of(plan) match {
      case Some(PythonNode.Eval(udfs, results, child, evalType)) =>
        FlightEvalPythonExec(udfs, results, planLater(child), evalType, settings)
      case Some(PythonNode.Table(node)) =>
        FlightEvalPythonUDTFExec(
          node.udtf,
          node.requiredChildOutput,
          node.resultAttrs,
          planLater(node.child),
          settings
        )
      case Some(PythonNode.MapRows(function, output, child, _, _)) =>
        FlightMapInBatchExec(function, output, planLater(child), settings)
      case Some(PythonNode.MapGroups(keys, function, output, child, isArrow)) =>
        val shape = if (isArrow) RowShape.Struct else RowShape.Columns
        FlightGroupedMapExec(keys, function, output, planLater(child), shape, settings)
      case Some(PythonNode.MapCogroups(leftKeys, rightKeys, function, output, left, right)) =>
        FlightCogroupedMapExec(
          leftKeys,
          rightKeys,
          function,
          output,
          planLater(left),
          planLater(right),
          settings
        )
      case Some(PythonNode.Aggregated(keys, functions, results, child)) =>
        FlightAggregateExec(keys, functions, results, planLater(child), settings)
      case Some(PythonNode.Windowed(windows, partitions, order, child)) =>
        FlightWindowExec(windows, partitions, order, planLater(child), settings)
      case None => throw new IllegalStateException(s"no operator for ${plan.nodeName}")
    }

  private def stock(plan: LogicalPlan, reason: String): Seq[SparkPlan] = {
    val planned = SparkInternals.planByOthers(session, plan)
    logWarning(s"${plan.nodeName} stays in Spark's own Python workers: $reason")
    planned.map(StockPythonExec.above(_, reason))
  }
}
