// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write

import org.apache.spark.sql.catalyst.expressions.{Alias, Attribute, NamedExpression}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.datasources.WriteFilesExec
import org.apache.spark.sql.execution.{ColumnarRule, ColumnarToRowExec, ProjectExec, SparkPlan}

/** Rule that puts [[WriterInputExec]] below Spark's WriteFiles if a writer makes the files. It
  * reads the batches of a columnar child if nothing needs single rows on the way to the file, as
  * partitions, buckets and expressions do; otherwise it reads rows.
  */
object WriterInput extends ColumnarRule {

  override def postColumnarTransitions: Rule[SparkPlan] = new Rule[SparkPlan] {
    override val ruleName: String = "WriterInput"

    override def apply(plan: SparkPlan): SparkPlan = plan.transformUp {
      case write: WriteFilesExec if isOurs(write) => write.withNewChildren(Seq(input(write)))
    }
  }

  private def isOurs(write: WriteFilesExec): Boolean = write.fileFormat match {
    case _: RemoteFormat => true
    case _ => false
  }

  private def input(write: WriteFilesExec): SparkPlan = {
    val rows = write.child
    val whole = write.partitionColumns.isEmpty && write.bucketSpec.isEmpty
    rows match {
      case ColumnarToRowExec(batches) if whole =>
        WriterInputExec(batches.output, rows.output, batches)
      case ProjectExec(Columns(columns), ColumnarToRowExec(batches)) if whole =>
        WriterInputExec(columns, rows.output, batches)
      case _ => WriterInputExec(rows.output, rows.output, rows)
    }
  }

  /** Extractor for a projection that only selects, reorders and renames columns. */
  private object Columns {
    def unapply(list: Seq[NamedExpression]): Option[Seq[Attribute]] = {
      val columns = list.collect {
        case column: Attribute => column
        case Alias(column: Attribute, _) => column
      }
      Option.when(columns.length == list.length)(columns)
    }
  }
}
