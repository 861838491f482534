// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write.delta;

import org.apache.spark.SparkContext;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkPlanInfo$;
import org.apache.spark.sql.execution.ui.SparkListenerSQLAdaptiveExecutionUpdate;

/**
 * Plan of a write, as the SQL tab shows it. Delta puts operators above the plan of a query and runs
 * them, but tells Spark of the query's plan only.
 */
final class ShownPlan {
  private final SparkContext context;
  private final long query;
  private final SparkPlan plan;

  private ShownPlan(SparkContext context, long query, SparkPlan plan) {
    this.context = context;
    this.query = query;
    this.plan = plan;
  }

  /** Return the plan of the query that this thread runs; null if it runs none. */
  static ShownPlan of(SparkPlan plan) {
    SparkContext context = plan.session().sparkContext();
    String query = context.getLocalProperty(SQLExecution.EXECUTION_ID_KEY());
    return query == null ? null : new ShownPlan(context, Long.parseLong(query), plan);
  }

  /** Show the plan in place of the one that is shown now, as adaptive execution does. */
  void show() {
    context
        .listenerBus()
        .post(
            new SparkListenerSQLAdaptiveExecutionUpdate(
                query, plan.treeString(), SparkPlanInfo$.MODULE$.fromSparkPlan(plan)));
  }
}
