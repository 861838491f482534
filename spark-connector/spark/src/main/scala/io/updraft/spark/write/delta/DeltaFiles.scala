// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write.delta

import org.apache.hadoop.conf.Configuration
import org.apache.spark.sql.delta.DeltaParquetFileFormat
import org.apache.spark.sql.delta.actions.{Metadata, Protocol}
import org.apache.spark.sql.types.StructType

import io.updraft.proto.v1.WriteCommand
import io.updraft.spark.write.{ParquetPlan, RemoteFormat}

/** Format of a Delta table's data files. A writer service makes the files if [[DeltaRules]] allow
  * it.
  *
  * @param leftToSpark
  *   reason why Delta's own writer makes the files anyway; None if the writer service makes them
  */
final class DeltaFiles(
    ofTable: Protocol,
    table: Metadata,
    override protected val leftToSpark: Option[String]
) extends DeltaParquetFileFormat(ofTable, table)
    with RemoteFormat {

  override def shortName(): String = "delta"

  override protected def command(
      builder: WriteCommand.Builder,
      dataSchema: StructType,
      conf: Configuration
  ): Either[String, WriteCommand] = DeltaRules.reason(ofTable, table) match {
    case Some(reason) => Left(reason)
    case None => ParquetPlan.command(builder.setInTable(true), dataSchema, conf)
  }
}
