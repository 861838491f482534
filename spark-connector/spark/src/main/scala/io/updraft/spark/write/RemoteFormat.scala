// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.mapreduce.Job
import org.apache.hadoop.mapreduce.lib.output.FileOutputFormat
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.execution.datasources.orc.OrcFileFormat
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat
import org.apache.spark.sql.execution.datasources.{FileFormat, OutputWriterFactory}
import org.apache.spark.sql.sources.DataSourceRegister
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.updraft.SparkInternals

import io.updraft.proto.v1.WriteCommand
import io.updraft.spark.config.{UnknownNames, WriteConf}

/** Spark file format whose files a writer service makes, unless the service cannot make them. */
trait RemoteFormat extends FileFormat with DataSourceRegister {

  /** Complete the command that the settings determine for each file, or return why the writer
    * cannot make the files.
    *
    * @param conf
    *   configuration of the job, as prepared by Spark's own writer
    */
  protected def command(
      builder: WriteCommand.Builder,
      dataSchema: StructType,
      conf: Configuration
  ): Either[String, WriteCommand]

  /** Return why Spark's own writer makes the files although the writer service could; None if the
    * service makes them.
    */
  protected def leftToSpark: Option[String] = None

  abstract override def prepareWrite(
      session: SparkSession,
      job: Job,
      options: Map[String, String],
      dataSchema: StructType
  ): OutputWriterFactory = {
    val planned = plan(session, job, options, dataSchema)
    RemoteWriterFactory.create(session, shortName(), reachable(session, job, planned))
  }

  /** Return the plan. If the writer would not make the files now and the session allows the
    * fallback, return a plan with Spark's own writer.
    */
  private def reachable(session: SparkSession, job: Job, plan: WritePlan): WritePlan = plan match {
    case ByWriter(stock, settings, command) if settings.fallback == "local" =>
      val conf = job.getConfiguration
      val directory = FileOutputFormat.getOutputPath(job)
      WriterAnswer
        .problem(session.sparkContext, settings, command, directory, conf)
        .fold(plan)(BySpark(stock, _))
    case _ => plan
  }

  /** Decide whether the writer service or Spark makes the files of a write. This method prepares
    * the job as Spark's own writer does and changes nothing else, so a write may be planned before
    * Spark deletes the old data, and again afterwards.
    *
    * Raise IllegalArgumentException for a wrong setting, and UnsupportedOperationException if the
    * writer cannot make the files and the session forbids Spark's own writer.
    */
  def plan(
      session: SparkSession,
      job: Job,
      options: Map[String, String],
      dataSchema: StructType
  ): WritePlan = {
    val stock = super.prepareWrite(session, job, options, dataSchema)
    val conf = SparkInternals.conf(session)
    UnknownNames.warnOfSettings(session, conf)
    UnknownNames.warnOfOptions(session, options)
    val settings = WriteConf.settings(conf, options, shortName())
    command(settings.command(), dataSchema, job.getConfiguration) match {
      case Right(command) =>
        leftToSpark.fold[WritePlan](ByWriter(stock, settings, command))(LeftToSpark(stock, _))
      case Left(reason) if settings.unsupported == "fail" =>
        throw new UnsupportedOperationException(
          s"${shortName()}: the writer cannot make these files as Spark does: $reason. " +
            s"Set ${WriteConf.unsupported.key} = local to let Spark's own writer make them"
        )
      case Left(reason) => BySpark(stock, reason)
    }
  }
}

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

/** Data source `updraft-orc`: Spark's ORC, with files made by a writer service. Spark still does
  * everything else, such as reading and committing files.
  */
class UpdraftOrcFormat extends OrcFileFormat with RemoteFormat {

  override def shortName(): String = "updraft-orc"

  override def toString: String = "Updraft-ORC"

  override protected def command(
      builder: WriteCommand.Builder,
      dataSchema: StructType,
      conf: Configuration
  ): Either[String, WriteCommand] = OrcPlan.command(builder, dataSchema, conf)
}
