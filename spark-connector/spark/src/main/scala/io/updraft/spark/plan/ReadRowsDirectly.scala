// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.plan

import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.{ColumnarRule, RowToColumnarExec, SparkPlan}

/** Rule that removes the transition that Spark inserts below a columnar operator with a row child,
  * because our operators read rows themselves.
  */
object ReadRowsDirectly extends ColumnarRule {

  override def postColumnarTransitions: Rule[SparkPlan] = new Rule[SparkPlan] {
    override val ruleName: String = "ReadRowsDirectly"

    override def apply(plan: SparkPlan): SparkPlan = plan.transformUp {
      case flight: FlightPythonExec =>
        flight.withNewChildren(flight.children.map {
          case RowToColumnarExec(rows) => rows
          case other => other
        })
    }
  }
}
