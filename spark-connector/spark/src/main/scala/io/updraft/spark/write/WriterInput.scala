// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write

import org.apache.spark.TaskContext
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{
  Alias,
  Attribute,
  AttributeSet,
  NamedExpression,
  SortOrder
}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.types.DataTypeUtils
import org.apache.spark.sql.execution.datasources.WriteFilesExec
import org.apache.spark.sql.execution.datasources.v2.{
  AppendDataExec,
  OverwriteByExpressionExec,
  OverwritePartitionsDynamicExec,
  V2ExistingTableWriteExec
}
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.{
  ColumnarRule,
  ColumnarToRowExec,
  InputAdapter,
  ProjectExec,
  SparkPlan,
  UnaryExecNode,
  WholeStageCodegenExec
}
import org.apache.spark.sql.updraft.SparkInternals

/** Rule that puts [[WriterInputExec]] below Spark's WriteFiles, or a table's write, if a writer
  * makes the files. The operator reads the batches of a columnar child, unless partitions, buckets
  * or expressions between the child and the files need single rows.
  */
object WriterInput extends ColumnarRule {

  override def postColumnarTransitions: Rule[SparkPlan] = new Rule[SparkPlan] {
    override val ruleName: String = "WriterInput"

    override def apply(plan: SparkPlan): SparkPlan = plan.transformUp {
      case write: WriteFilesExec if isOurs(write) =>
        val takesBatches = write.partitionColumns.isEmpty && write.bucketSpec.isEmpty
        write.withNewChildren(Seq(if (takesBatches) of(write.child) else ofRows(write.child)))
      case write: V2ExistingTableWriteExec if !write.child.isInstanceOf[WriterInputExec] =>
        write.write match {
          case remote: RemoteTableWrite if remote.isRemote =>
            val takesBatches = remote.keepsOrder && takesRows(write)
            write.withNewChildren(Seq(if (takesBatches) of(write.child) else ofRows(write.child)))
          case _ => write
        }
    }
  }

  private def isOurs(write: WriteFilesExec): Boolean = write.fileFormat match {
    case _: RemoteFormat => true
    case _ => false
  }

  /** Return whether a table's write receives the query's rows unchanged. */
  private def takesRows(write: V2ExistingTableWriteExec): Boolean = write match {
    case _: AppendDataExec | _: OverwriteByExpressionExec | _: OverwritePartitionsDynamicExec =>
      true
    case _ => false
  }

  /** Return the input of a write that needs no single rows on the way to its files.
    *
    * @param rows
    *   plan of the rows to write, complete or before Spark marks the stages with generated code
    */
  def of(rows: SparkPlan): SparkPlan = rows match {
    case WholeStageCodegenExec(stage) =>
      of(stage) match {
        case input: WriterInputExec if input.takesBatches => input
        case _ => ofRows(rows)
      }
    case ColumnarToRowExec(Batches(batches)) =>
      WriterInputExec(batches.output, rows.output, batches, takesBatches = true)
    case ProjectExec(Columns(columns), ColumnarToRowExec(Batches(batches))) =>
      WriterInputExec(columns, rows.output, batches, takesBatches = true)
    // A scan of cached data can return rows or batches.
    case scan if scan.supportsColumnar =>
      WriterInputExec(scan.output, scan.output, scan, takesBatches = true)
    case _ => ofRows(rows)
  }

  /** Return the input of a write that needs single rows. */
  def ofRows(rows: SparkPlan): SparkPlan =
    WriterInputExec(rows.output, rows.output, rows, takesBatches = false)

  /** Extractor for the operator that makes batches. */
  private object Batches {
    def unapply(child: SparkPlan): Some[SparkPlan] = child match {
      case InputAdapter(batches) => Some(batches)
      case _ => Some(child)
    }
  }

  /** Extractor for a projection that only selects, reorders and renames columns. */
  private object Columns {
    def unapply(list: Seq[NamedExpression]): Option[Seq[Attribute]] = {
      val columns = list.collect {
        case column: Attribute => column
        case Alias(column: Attribute, _) => column
      }
      if (columns.length == list.length) Some(columns) else None
    }
  }
}

/** Operator between a write and its input. The operator's metrics show the costs of the files.
  * [[WriterInput]] inserts the operator.
  *
  * @param columns
  *   columns to write, as attributes of the child
  * @param takesBatches
  *   true if the operator returns rows inside the child's batches ([[BatchRow]]), so that no row is
  *   built
  */
case class WriterInputExec(
    columns: Seq[Attribute],
    override val output: Seq[Attribute],
    child: SparkPlan,
    takesBatches: Boolean
) extends UnaryExecNode {
  private lazy val costs = WriteMetrics.ofPlan(sparkContext)

  override lazy val metrics: Map[String, SQLMetric] = costs.all

  override def nodeName: String =
    s"WriterInput ${if (takesBatches) "batches" else "rows"}"

  override def producedAttributes: AttributeSet = outputSet

  /** Return the child's ordering; none for batches, so that Spark sorts the rows again if the write
    * requires an order.
    */
  override def outputOrdering: Seq[SortOrder] =
    if (takesBatches) Nil else child.outputOrdering

  override protected def doExecute(): RDD[InternalRow] = {
    // Copy to a local variable, so that tasks do not serialize the plan.
    val costs = this.costs
    if (takesBatches) {
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
