// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write

import org.apache.hadoop.mapreduce.Job
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.execution.datasources.OutputWriterFactory
import org.apache.spark.sql.execution.datasources.orc.OrcFileFormat
import org.apache.spark.sql.types.StructType

/** `updraft-orc`: Spark's ORC, but a writer service makes the files. Reading, the commit and
  * everything else around a file stay Spark's.
  */
class UpdraftOrcFormat extends OrcFileFormat {

  override def shortName(): String = "updraft-orc"

  override def toString: String = "Updraft-ORC"

  override def prepareWrite(
      session: SparkSession,
      job: Job,
      options: Map[String, String],
      dataSchema: StructType
  ): OutputWriterFactory = {
    val stock = super.prepareWrite(session, job, options, dataSchema)
    RemoteWriterFactory.create(session, shortName(), stock) { settings =>
      OrcPlan.command(settings.command(), dataSchema, job.getConfiguration)
    }
  }
}
