// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write.delta;

import org.apache.spark.SparkContext;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkPlanInfo$;
import org.apache.spark.sql.execution.ui.SparkListenerSQLAdaptiveExecutionUpdate;
import org.apache.spark.util.Utils;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Plan of a write, as the SQL tab shows it. Delta adds operators above the plan of a query and runs
 * them, but reports only the query's plan to Spark.
 */
final class ShownPlan {
  private static final Logger log = LoggerFactory.getLogger(ShownPlan.class);

  private final SparkContext context;
  private final long query;
  private final SparkPlan plan;

  private ShownPlan(SparkContext context, long query, SparkPlan plan) {
    this.context = context;
    this.query = query;
    this.plan = plan;
  }

  /** Return the plan, for the query that this thread runs; null if this thread runs no query. */
  static ShownPlan of(SparkPlan plan) {
    SparkContext context = plan.session().sparkContext();
    String query = context.getLocalProperty(SQLExecution.EXECUTION_ID_KEY());
    return query == null ? null : new ShownPlan(context, Long.parseLong(query), plan);
  }

  /** Replace the plan that the SQL tab shows with this plan, as adaptive execution does. */
  void show() {
    try {
      String text = Utils.redact(plan.conf().stringRedactionPattern(), plan.treeString());
      context
          .listenerBus()
          .post(
              new SparkListenerSQLAdaptiveExecutionUpdate(
                  query, text, SparkPlanInfo$.MODULE$.fromSparkPlan(plan)));
    } catch (RuntimeException | LinkageError e) {
      // A failure to show the plan must not fail the write.
      log.debug("delta: cannot show the plan of a write", e);
    }
  }
}
