// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.plan

import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{
  Alias,
  Attribute,
  AttributeSet,
  Literal,
  PythonUDF,
  SortOrder
}
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.{ColumnarToRowExec, ProjectExec, SparkPlan, UnaryExecNode}
import org.apache.spark.sql.updraft.{Renamed, SparkInternals}

import io.updraft.spark.config.UdfSettings

/** Operator for a registered function whose arguments are the same in all rows. The operator calls
  * the function once, with one row, when the query is executed. If that call fails, the operator
  * calls the function for each row instead. So errors look the same as for any other function, and
  * a query without rows does not fail.
  *
  * @param result
  *   column of the results
  */
case class FlightConstantExec(
    function: PythonUDF,
    result: Attribute,
    child: SparkPlan,
    settings: UdfSettings
) extends UnaryExecNode
    with Logging {

  @transient private lazy val once =
    FlightCallExec(function, result, SparkInternals.oneRow(sparkContext), settings)

  @transient private lazy val value: Option[Literal] =
    try {
      val rows = ColumnarToRowExec(once).executeCollect()
      Some(Literal(rows.head.get(0, result.dataType), result.dataType))
    } catch {
      case NonFatal(e) if !Renamed.isCancellation(e) =>
        logWarning(
          s"the single call of ${function.name}() for all rows failed: calling it for each row",
          e
        )
        None
    }

  override lazy val metrics: Map[String, SQLMetric] = once.metrics

  override def output: Seq[Attribute] = child.output :+ result

  override def producedAttributes: AttributeSet = AttributeSet(result)

  override def outputPartitioning: Partitioning = child.outputPartitioning

  override def outputOrdering: Seq[SortOrder] = child.outputOrdering

  override protected def doExecute(): RDD[InternalRow] = value match {
    case Some(literal) =>
      val column = Alias(literal, result.name)(exprId = result.exprId)
      ProjectExec(child.output :+ column, child).execute()
    case None => ColumnarToRowExec(FlightCallExec(function, result, child, settings)).execute()
  }

  override def simpleString(maxFields: Int): String =
    s"$nodeName [${function.name}()], endpoint=${settings.endpoint}"

  override protected def withNewChildInternal(newChild: SparkPlan): FlightConstantExec =
    copy(child = newChild)
}

object FlightConstantExec {

  /** Return whether a call returns the same value for all rows and the input may have several rows.
    */
  def isFor(function: PythonUDF, maxRows: Option[Long]): Boolean =
    function.deterministic && function.children.forall(_.foldable) && !maxRows.exists(_ <= 1)
}
