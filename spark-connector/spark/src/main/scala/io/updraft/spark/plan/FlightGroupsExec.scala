// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.plan

import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeSet, PythonUDF}
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.python.GroupColumns
import org.apache.spark.sql.updraft.PythonCall
import org.apache.spark.sql.updraft.SparkInternals.EvalType

import io.updraft.spark.columns.ResultColumns
import io.updraft.spark.task.FunctionCall
import io.updraft.spark.task.groups.{GroupMetrics, GroupedInput, RowShape}
import io.updraft.spark.task.output.{RowCheck, RowResult}

/** Shared part of the operators whose function returns rows for groups of rows. */
trait FlightGroupsExec extends FlightPythonExec {

  def function: PythonUDF

  private lazy val groupMetrics = GroupMetrics.create(sparkContext)

  override lazy val metrics: Map[String, SQLMetric] = exchangeMetrics.all ++ groupMetrics.all

  override def udfs: Seq[PythonUDF] = Seq(function)

  override def producedAttributes: AttributeSet = AttributeSet(output)

  override def vectorTypes: Option[Seq[String]] =
    Some(output.map(column => ResultColumns.className(column.dataType)))

  protected def groupedInput(
      plan: SparkPlan,
      keys: Seq[Attribute],
      columns: GroupColumns,
      shape: RowShape
  ): GroupedInput = {
    val spec = requestSpec(plan.output, columns.ordinals, Seq.empty, columns.attributes)
    GroupedInput(spec, keys, GroupOrder.groupedRows(keys, plan, groupMetrics), shape)
  }

  protected def groupedCall(arguments: Seq[Int]): FunctionCall =
    arrowCall(PythonCall.ofNumbers(function, arguments))

  protected def rowResult: RowResult =
    RowResult(function.dataType, output.map(_.dataType), EvalType.name(evalType), RowCheck.Layout)
}
