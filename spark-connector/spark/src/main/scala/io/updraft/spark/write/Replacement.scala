// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write

import org.apache.hadoop.fs.Path
import org.apache.spark.sql.catalyst.expressions.AttributeSet
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.types.DataTypeUtils
import org.apache.spark.sql.execution.datasources.InsertIntoHadoopFsRelationCommand
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.updraft.SavedTable
import org.apache.spark.sql.{SaveMode, SparkSession}

/** Write that deletes existing data first and whose files a writer may make.
  *
  * @param directory
  *   directory that contains all written files, whichever committer moves them
  * @param schema
  *   schema of the files, without the partition columns
  */
final case class Replacement(
    format: RemoteFormat,
    directory: Path,
    schema: StructType,
    options: Map[String, String]
)

object Replacement {

  /** Return what a command replaces; None if it replaces nothing. This covers `saveAsTable`, which
    * drops the table before its insert, and the inserts of `mode("overwrite")`, `INSERT OVERWRITE`
    * and `CREATE TABLE ... AS SELECT`.
    */
  def of(session: SparkSession, plan: LogicalPlan): Option[Replacement] = plan match {
    case insert: InsertIntoHadoopFsRelationCommand if insert.mode == SaveMode.Overwrite =>
      remote(insert.fileFormat).map { format =>
        val partitions = AttributeSet(insert.partitionColumns)
        val columns = insert.outputColumns.filterNot(partitions.contains)
        val schema = DataTypeUtils.fromAttributes(columns)
        Replacement(format, insert.outputPath, schema, insert.options)
      }
    case SavedTable(table) =>
      remote(table.format(session)).map { format =>
        Replacement(format, table.location(session), table.dataSchema(session), table.options)
      }
    case _ => None
  }

  private def remote(format: Any): Option[RemoteFormat] = format match {
    case format: RemoteFormat => Some(format)
    case _ => None
  }
}
