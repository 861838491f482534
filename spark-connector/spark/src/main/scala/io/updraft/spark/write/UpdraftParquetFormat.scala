// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write

import org.apache.hadoop.mapreduce.Job
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.execution.datasources.OutputWriterFactory
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat
import org.apache.spark.sql.types.StructType

/** `updraft-parquet`: Spark's Parquet, but a writer service makes the files. Reading, the commit
  * and everything else around a file stay Spark's.
  */
class UpdraftParquetFormat extends ParquetFileFormat {

  override def shortName(): String = "updraft-parquet"

  override def toString: String = "Updraft-Parquet"

  override def prepareWrite(
      session: SparkSession,
      job: Job,
      options: Map[String, String],
      dataSchema: StructType
  ): OutputWriterFactory = {
    val stock = super.prepareWrite(session, job, options, dataSchema)
    RemoteWriterFactory.create(session, shortName(), stock) { settings =>
      ParquetPlan.command(settings.command(), dataSchema, job.getConfiguration)
    }
  }
}
