// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write.delta

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.logical.{Command, V2WriteCommand}
import org.apache.spark.sql.delta.catalog.DeltaTableV2
import org.apache.spark.sql.delta.files.TahoeFileIndex
import org.apache.spark.sql.delta.{DeltaLog, SnapshotDescriptor}
import org.apache.spark.sql.execution.datasources.v2.{DataSourceV2Relation, V2CommandExec}
import org.apache.spark.sql.execution.{SparkPlan, UnaryExecNode}
import org.apache.spark.sql.internal.SQLConf

import io.updraft.spark.write.{ParquetPlan, SmallWrite}

/** Operator above a command whose data files Delta's own writer makes. It shows the reason in
  * `explain` and in the SQL tab, and runs the command.
  */
case class FilesByDeltaExec(reason: String, child: SparkPlan)
    extends V2CommandExec
    with UnaryExecNode {

  override def output: Seq[Attribute] = child.output

  override def nodeName: String = "FilesByDelta"

  override def stringArgs: Iterator[Any] = Iterator(s"because of $reason")

  override protected def run(): Seq[InternalRow] = child.executeCollect().toSeq

  override protected def withNewChildInternal(newChild: SparkPlan): FilesByDeltaExec =
    copy(child = newChild)
}

object FilesByDelta {

  /** Return why Delta makes the data files of the Delta table that a command writes; None if a
    * writer makes them, or if the command writes no existing Delta table. The size of the rows is
    * known only for inserts.
    */
  def reason(conf: SQLConf, command: Command): Option[String] =
    table(command).flatMap { found =>
      DeltaRules
        .reason(found.protocol, found.metadata)
        .orElse(ParquetPlan.typeReason(found.metadata.schema))
        .orElse(command match {
          case write: V2WriteCommand => SmallWrite.reason(conf, write.query)
          case _ => None
        })
    }

  private def table(command: Command): Option[SnapshotDescriptor] = command match {
    case write: V2WriteCommand => Some(write.table).collect { case relation: DataSourceV2Relation =>
        relation.table
      }.collect { case table: DeltaTableV2 => table.initialSnapshot }
    case other =>
      (other.children.iterator ++ other.productIterator).collectFirst {
        case index: TahoeFileIndex => index.deltaLog.unsafeVolatileSnapshot
        case log: DeltaLog => log.unsafeVolatileSnapshot
      }
  }
}
