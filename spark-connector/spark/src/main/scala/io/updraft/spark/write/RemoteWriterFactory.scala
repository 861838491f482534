// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write

import org.apache.hadoop.mapreduce.TaskAttemptContext
import org.apache.spark.TaskContext
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.execution.datasources.{OutputWriter, OutputWriterFactory}
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.updraft.SparkInternals
import org.slf4j.LoggerFactory

import io.updraft.proto.v1.WriteCommand
import io.updraft.spark.config.{WriteConf, WriteSettings}
import io.updraft.spark.trace.QuerySpans

/** Opens the files of one write: made on the driver, serialized to the tasks.
  *
  * @param stock
  *   Spark's own, which names the files
  * @param command
  *   what the files have in common, as a WriteCommand
  */
final class RemoteWriterFactory(
    stock: OutputWriterFactory,
    settings: WriteSettings,
    command: Array[Byte],
    metrics: WriteMetrics
) extends OutputWriterFactory {

  override def getFileExtension(context: TaskAttemptContext): String =
    stock.getFileExtension(context)

  override def newInstance(
      path: String,
      dataSchema: StructType,
      context: TaskAttemptContext
  ): OutputWriter =
    RowFile.open(
      path,
      dataSchema,
      settings,
      WriteCommand.parseFrom(command),
      metrics,
      context.getConfiguration,
      TaskContext.get()
    )
}

object RemoteWriterFactory {
  private val log = LoggerFactory.getLogger(getClass)

  /** The factory for a write; Spark's own where the writer cannot do what is asked and the settings
    * allow that.
    *
    * @param plan
    *   gives the command, or why the writer cannot do it
    */
  def create(session: SparkSession, format: String, stock: OutputWriterFactory)(
      plan: WriteSettings => Either[String, WriteCommand]
  ): OutputWriterFactory = {
    val settings = WriteConf.settings(SparkInternals.conf(session), format)
    plan(settings) match {
      case Right(command) =>
        val metrics = WriteMetrics.ofStage(session.sparkContext)
        QuerySpans.begin(settings.connection, session.sparkContext)
        new RemoteWriterFactory(stock, settings, command.toByteArray, metrics)
      case Left(reason) if settings.unsupported == "fail" =>
        throw new UnsupportedOperationException(
          s"$format: the writer cannot make these files as Spark does: $reason. " +
            s"Set ${WriteConf.unsupported.key} = local to let Spark's own writer make them"
        )
      case Left(reason) =>
        log.warn(s"$format: Spark's own writer makes these files, because of $reason")
        stock
    }
  }
}
