// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.plan

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, SortOrder}
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.execution.{SparkPlan, UnaryExecNode}
import org.apache.spark.sql.vectorized.ColumnarBatch

import io.updraft.spark.config.{UdfSettings, UpdraftConf}
import io.updraft.spark.reasons.FallbackReason

/** Wrapper above an operator that stays with Spark's own Python workers. It gives the reason in the
  * plan, and in the error if the executor's Python lacks something.
  *
  * It forwards only what Spark's Python operators override, so it must not wrap any other operator:
  * see [[StockPythonExec.above]].
  */
case class StockPythonExec(reason: String, child: SparkPlan) extends UnaryExecNode {
  override def output: Seq[Attribute] = child.output
  override def outputPartitioning: Partitioning = child.outputPartitioning
  override def outputOrdering: Seq[SortOrder] = child.outputOrdering
  override def supportsColumnar: Boolean = child.supportsColumnar
  override def supportsRowBased: Boolean = child.supportsRowBased
  override def vectorTypes: Option[Seq[String]] = child.vectorTypes
  override protected def doExecute(): RDD[InternalRow] = new ExplainedRDD(child.execute(), reason)
  override protected def doExecuteColumnar(): RDD[ColumnarBatch] =
    new ExplainedRDD(child.executeColumnar(), reason)

  override def simpleString(maxFields: Int): String = s"$nodeName not on the pool: $reason"

  override protected def withNewChildInternal(newChild: SparkPlan): StockPythonExec =
    copy(child = newChild)
}

object StockPythonExec {
  private val PythonOperators = "org.apache.spark.sql.execution.python"

  /** Return the operator wrapped with the reason. An operator that is not one of Spark's own Python
    * operators, such as another extension's, is returned unchanged.
    */
  def above(operator: SparkPlan, reason: String): SparkPlan =
    if (operator.getClass.getName.startsWith(s"$PythonOperators."))
      StockPythonExec(reason, operator)
    else operator

  /** Raise an error if an operator must not stay with Spark's own Python workers. */
  def permit(settings: UdfSettings, operator: String, reason: FallbackReason): Unit =
    if (settings.unsupported == "fail") {
      throw new UnsupportedOperationException(
        s"$operator cannot run on the pool: $reason. Set ${UpdraftConf.unsupported.key} = local to " +
          "run it in Spark's own Python workers"
      )
    }
}
