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

/** Stands above an operator that stays with Spark's own Python workers and says why: in the plan,
  * and in the error where the executor's Python lacks something.
  *
  * It forwards what Spark's Python operators override and nothing more, so it stands above no other
  * operator: see [[StockPythonExec.above]].
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

  /** The operator with its reason above it; unchanged unless it is one of Spark's own Python
    * operators, as another extension's is not.
    */
  def above(operator: SparkPlan, reason: String): SparkPlan =
    if (operator.getClass.getName.startsWith(s"$PythonOperators."))
      StockPythonExec(reason, operator)
    else operator

  /** Raises an error where an operator may not stay with Spark's own Python workers. */
  def permit(settings: UdfSettings, operator: String, reason: FallbackReason): Unit =
    if (settings.unsupported == "fail") {
      throw new UnsupportedOperationException(
        s"$operator cannot run on the pool: $reason. Set ${UpdraftConf.unsupported.key} = local to " +
          "run it in Spark's own Python workers"
      )
    }
}
