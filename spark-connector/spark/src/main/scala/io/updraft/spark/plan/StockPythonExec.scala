// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.plan

import java.io.IOException

import scala.reflect.ClassTag

import org.apache.spark.internal.Logging
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, SortOrder}
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.python.PythonExceptions
import org.apache.spark.sql.execution.{ColumnarRule, SparkPlan, UnaryExecNode}
import org.apache.spark.sql.vectorized.ColumnarBatch
import org.apache.spark.{Partition, Partitioner, SparkException, TaskContext}

import io.updraft.spark.config.{UdfSettings, UpdraftConf}
import io.updraft.spark.reasons.{FallbackReason, FunctionKinds}

/** Wrapper above an operator that stays with Spark's own Python workers. The wrapper shows the
  * fallback reason in the plan. If a function fails because the executor's Python lacks a package,
  * the wrapper adds the fallback reason to the error.
  *
  * The wrapper forwards only the methods that Spark's Python operators override, so it must not
  * wrap any other operator: see [[StockPythonExec.above]].
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

  /** Wrap the operator, to show the reason, if the operator is one of Spark's own Python operators.
    * Return any other operator, such as an operator of another extension, unchanged.
    */
  def above(operator: SparkPlan, reason: String): SparkPlan =
    if (operator.getClass.getName.startsWith(s"$PythonOperators."))
      StockPythonExec(reason, operator)
    else operator

  /** Raise an error if the session does not allow the operator to run in Spark's own Python
    * workers.
    */
  def permit(settings: UdfSettings, operator: String, reason: FallbackReason): Unit =
    if (settings.unsupported == "fail") {
      throw new UnsupportedOperationException(
        s"$operator cannot run on the pool: $reason. Set ${UpdraftConf.unsupported.key} = local to " +
          "run it in Spark's own Python workers"
      )
    }
}

/** Rule that shows in the plan why a stream's stateful functions stay in Spark's own Python
  * workers. [[UpdraftStrategy]] cannot do this, because Spark's own strategies plan these functions
  * first.
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
      // Log this for each micro-batch, like Spark's own log lines about a micro-batch.
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

/** Results of Spark's own Python workers. If the executor's Python lacks a package, the error
  * explains why the function ran in such a worker at all.
  *
  * @param reason
  *   reason why the function is not on the pool
  */
private[plan] final class ExplainedRDD[T: ClassTag](rows: RDD[T], reason: String)
    extends RDD[T](rows) {

  override val partitioner: Option[Partitioner] = rows.partitioner

  override protected def getPartitions: Array[Partition] = firstParent[T].partitions

  override def compute(split: Partition, context: TaskContext): Iterator[T] = {
    val values = explain(firstParent[T].iterator(split, context))
    new Iterator[T] {
      override def hasNext: Boolean = explain(values.hasNext)
      override def next(): T = explain(values.next())
    }
  }

  private def explain[R](body: => R): R =
    try body
    catch { case e: Exception => throw explained(e) }

  private def explained(e: Exception): Throwable = PythonExceptions.traceback(e) match {
    case Some(traceback) if ExplainedRDD.lacksPackage(traceback) =>
      PythonExceptions.of(s"${traceback.stripTrailing}\n$note")
    case None if isWithoutPython(e) => new SparkException(s"${message(e).stripTrailing}\n$note", e)
    case _ => e
  }

  /** Return whether Spark reports that the executor has no Python, or a Python without PySpark. */
  private def isWithoutPython(e: Exception): Boolean = e match {
    case _: IOException => message(e).startsWith("Cannot run program")
    case _: SparkException => ExplainedRDD.lacksPackage(message(e))
    case _ => false
  }

  private def message(e: Exception): String = Option(e.getMessage).getOrElse("")

  private def note =
    s"The function ran in Spark's own Python worker, with the executor's Python, because $reason. " +
      "Install what the executor lacks, or run the function on a pool"
}

private object ExplainedRDD {
  private val Signs = Seq("ModuleNotFoundError: ", "PySparkImportError: ", "No module named ")

  private def lacksPackage(text: String): Boolean = Signs.exists(text.contains(_))
}
