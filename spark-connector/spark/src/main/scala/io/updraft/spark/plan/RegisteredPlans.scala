// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.plan

import org.apache.spark.SparkException
import org.apache.spark.sql.catalyst.expressions.{
  AttributeReference,
  PythonFuncExpression,
  PythonUDAF
}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.DataType
import org.apache.spark.sql.updraft.CalledFunction

import io.updraft.spark.config.{UdfSettings, UpdraftConf}

/** Planning of nodes that call registered functions. These functions run only on the pool that
  * deploys them. The session's endpoint and fallback have no effect on them.
  */
object RegisteredPlans {

  /** Return whether a node itself, not its children, calls a registered function. A command does
    * not count, even if its expressions contain such functions: it plans separate queries that call
    * them.
    */
  def calls(plan: LogicalPlan): Boolean = plan match {
    case _: Command => false
    case _ =>
      plan.expressions.exists(_.exists {
        case function: PythonFuncExpression => CalledFunction.of(function).isDefined
        case _ => false
      })
  }

  /** Return the physical plan of the node.
    *
    * @param planLater
    *   function that returns Spark's plan of a child
    */
  def planned(plan: LogicalPlan, planLater: LogicalPlan => SparkPlan): SparkPlan = plan match {
    case ArrowEvalPython(udfs, results, child, evalType) =>
      val (called, shipped) =
        udfs.zip(results).partition { case (udf, _) => CalledFunction.of(udf).isDefined }
      val below =
        if (shipped.isEmpty) child
        else ArrowEvalPython(shipped.map(_._1), shipped.map(_._2), child, evalType)
      val (constant, varying) =
        called.partition { case (udf, _) => FlightConstantExec.isFor(udf, child.maxRows) }
      val calls = varying.foldLeft(planLater(below)) { case (under, (udf, result)) =>
        FlightCallExec(udf, result, under, settings(udf))
      }
      constant.foldLeft(calls) { case (under, (udf, result)) =>
        FlightConstantExec(udf, result, under, settings(udf))
      }
    case table: BaseEvalPythonUDTF =>
      FlightCallTableExec(
        table.udtf,
        table.requiredChildOutput,
        table.resultAttrs,
        planLater(table.child),
        settings(table.udtf)
      )
    case groups: RegisteredAggregation => aggregated(groups, planLater(groups.child))
    case other =>
      throw new SparkException(
        s"registered functions cannot be called in ${other.nodeName}: ${other.simpleStringWithNodeId()}"
      )
  }

  /** Plan an aggregation in two steps. The first step computes the states of the groups of each
    * partition. The second step shuffles the states by key and merges them into results.
    */
  private def aggregated(groups: RegisteredAggregation, child: SparkPlan): SparkPlan = {
    import groups.{filter, function, keys, result}
    groups.requireKeys()
    val pool = settings(function)
    val state = AttributeReference("state", stateType(function))()
    val states = FlightAccumulateExec(keys, filter, function, state, child, pool)
    FlightMergeExec(states.keyColumns, function, state, result, states, pool)
  }

  private def stateType(function: PythonUDAF): DataType =
    CalledFunction
      .of(function)
      .flatMap(_.state)
      .getOrElse(throw new SparkException(s"${function.name}() has no state"))

  private def settings(function: PythonFuncExpression): UdfSettings = {
    val endpoint = CalledFunction.of(function).fold("")(_.endpoint)
    UpdraftConf.settingsAt(endpoint, SQLConf.get)
  }
}
