// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write

import org.apache.spark.TaskContext
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeSet, SortOrder}
import org.apache.spark.sql.catalyst.types.DataTypeUtils
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.{SparkPlan, UnaryExecNode}
import org.apache.spark.sql.updraft.SparkInternals

/** Operator between Spark's WriteFiles and its input. Its metrics show the costs of the files. If
  * the child is columnar, it returns rows inside the child's batches ([[BatchRow]]), so that no row
  * is built. [[WriterInput]] inserts it, and WriteFiles still handles everything else.
  *
  * @param columns
  *   columns to write, as attributes of the child
  */
case class WriterInputExec(
    columns: Seq[Attribute],
    override val output: Seq[Attribute],
    child: SparkPlan
) extends UnaryExecNode {
  private lazy val costs = WriteMetrics.ofPlan(sparkContext)

  override lazy val metrics: Map[String, SQLMetric] = costs.all

  override def nodeName: String =
    s"WriterInput ${if (child.supportsColumnar) "batches" else "rows"}"

  override def producedAttributes: AttributeSet = outputSet

  /** Return the child's ordering; none for batches, which Spark then sorts again if it needs an
    * order.
    */
  override def outputOrdering: Seq[SortOrder] =
    if (child.supportsColumnar) Nil else child.outputOrdering

  override protected def doExecute(): RDD[InternalRow] = {
    // A local copy, so that tasks do not serialize the plan.
    val costs = this.costs
    if (child.supportsColumnar) {
      val schema = DataTypeUtils.fromAttributes(columns)
      val ordinals =
        columns.map(column => child.output.indexWhere(_.exprId == column.exprId)).toArray
      SparkInternals.mapPartitions(child.executeColumnar()) { (_, batches) =>
        TaskFiles.of(TaskContext.get()).report(costs)
        new BatchRows(batches, new BatchRow(schema, ordinals))
      }
    } else {
      SparkInternals.mapPartitions(child.execute()) { (_, rows) =>
        TaskFiles.of(TaskContext.get()).report(costs)
        rows
      }
    }
  }

  override protected def withNewChildInternal(newChild: SparkPlan): WriterInputExec =
    copy(child = newChild)
}
