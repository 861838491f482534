// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write

import org.apache.hadoop.conf.Configuration
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat
import org.apache.spark.sql.types.StructType

import io.updraft.proto.v1.WriteCommand

/** Data source `updraft-parquet`: Spark's Parquet, with files made by a writer service. Spark still
  * does everything else, such as reading and committing files.
  */
class UpdraftParquetFormat extends ParquetFileFormat with RemoteFormat {

  override def shortName(): String = "updraft-parquet"

  override def toString: String = "Updraft-Parquet"

  override protected def command(
      builder: WriteCommand.Builder,
      dataSchema: StructType,
      conf: Configuration
  ): Either[String, WriteCommand] = ParquetPlan.command(builder, dataSchema, conf)
}
