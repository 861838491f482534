// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.plan

import org.apache.spark.internal.Logging
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.{ColumnarRule, SparkPlan}

import io.updraft.spark.config.{UdfSettings, UpdraftConf}
import io.updraft.spark.reasons.{FallbackReason, FunctionKinds}

/** Rule that adds to the plan why a stream's stateful functions stay with Spark.
  * [[UpdraftStrategy]] cannot do this, because Spark's own strategies plan these functions first.
  */
object StatefulFunctions extends ColumnarRule with Logging {

  override def postColumnarTransitions: Rule[SparkPlan] = new Rule[SparkPlan] {
    override val ruleName: String = "StatefulFunctions"

    override def apply(plan: SparkPlan): SparkPlan =
      if (plan.exists(isStateful)) UpdraftConf.settings(conf).fold(plan)(explained(plan, _))
      else plan
  }

  private def explained(plan: SparkPlan, settings: UdfSettings): SparkPlan = plan.transformUp {
    case node if isStateful(node) =>
      StockPythonExec.permit(settings, node.nodeName, FallbackReason.State)
      // Logged for each micro-batch, like Spark's own lines about it.
      logInfo(s"${node.nodeName} stays in Spark's own Python workers: ${FallbackReason.State}")
      StockPythonExec.above(node, FallbackReason.State.toString)
  }

  private def isStateful(node: SparkPlan): Boolean =
    node.logicalLink.exists(_.isStreaming) &&
      FunctionKinds.fallbackReason(
        node.expressions,
        isWindow = false
      ).contains(FallbackReason.State)
}
