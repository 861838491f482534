// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.window.{WindowExecBase, WindowFunctionFrame}
import org.apache.spark.sql.execution.{LeafExecNode, SparkPlan}

/** Factories of window frames and the projection of window results, made by Spark's own code. In
  * Spark 3.5 this code belongs to an operator, so this class creates an operator that never runs.
  */
abstract class FrameFactories extends Serializable {
  def windowExpression: Seq[NamedExpression]
  def partitionSpec: Seq[Expression]
  def orderSpec: Seq[SortOrder]
  def childOutput: Seq[Attribute]
  def spillSize: SQLMetric

  private lazy val operator =
    WindowOfFrames(windowExpression, partitionSpec, orderSpec, RowsOfFrames(childOutput))

  protected def windowFrameExpressionFactoryPairs: Seq[FrameFactories.Pair] = operator.factories

  protected def createResultProjection(expressions: Seq[Expression]): UnsafeProjection =
    operator.projection(expressions)
}

object FrameFactories {

  /** Window expressions with the same frame, and the factory of that frame. */
  type Pair = (collection.Seq[Expression], InternalRow => WindowFunctionFrame)
}

private case class WindowOfFrames(
    windowExpression: Seq[NamedExpression],
    partitionSpec: Seq[Expression],
    orderSpec: Seq[SortOrder],
    child: SparkPlan
) extends WindowExecBase {

  def factories: Seq[FrameFactories.Pair] = windowFrameExpressionFactoryPairs

  def projection(expressions: Seq[Expression]): UnsafeProjection =
    createResultProjection(expressions)

  override protected def doExecute(): RDD[InternalRow] =
    throw new UnsupportedOperationException("this placeholder makes frames and has no rows")

  override protected def withNewChildInternal(newChild: SparkPlan): WindowOfFrames =
    copy(child = newChild)
}

private case class RowsOfFrames(output: Seq[Attribute]) extends LeafExecNode {
  override protected def doExecute(): RDD[InternalRow] =
    throw new UnsupportedOperationException("this placeholder has columns and no rows")
}
