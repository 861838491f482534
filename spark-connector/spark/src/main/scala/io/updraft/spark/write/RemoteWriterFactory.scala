// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write

import org.apache.hadoop.mapreduce.TaskAttemptContext
import org.apache.spark.TaskContext
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.execution.datasources.{OutputWriter, OutputWriterFactory}
import org.apache.spark.sql.types.StructType
import org.apache.spark.util.LongAccumulator
import org.slf4j.LoggerFactory

import io.updraft.proto.v1.WriteCommand
import io.updraft.spark.config.WriteSettings
import io.updraft.spark.trace.QuerySpans

/** Decision about who makes the files of a write. */
sealed trait WritePlan

/** The writer service makes the files; Spark's factory names them. */
final case class ByWriter(
    stock: OutputWriterFactory,
    settings: WriteSettings,
    command: WriteCommand
) extends WritePlan

/** Spark's own writer makes the files, because the writer service cannot. */
final case class BySpark(stock: OutputWriterFactory, reason: String) extends WritePlan

/** Spark's own writer makes the files, although the writer service could. */
final case class LeftToSpark(stock: OutputWriterFactory, reason: String) extends WritePlan

/** Factory that opens the files of one write: made on the driver, serialized to the tasks.
  *
  * @param stock
  *   Spark's own factory, which names the files
  * @param command
  *   common part of the files' commands, as a WriteCommand
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
      FileColumns.of(dataSchema),
      settings,
      WriteCommand.parseFrom(command),
      metrics,
      context.getConfiguration,
      TaskContext.get()
    )
}

/** Factory of Spark's own writer that counts its files. */
final class OwnWriterFactory(stock: OutputWriterFactory, files: LongAccumulator)
    extends OutputWriterFactory {

  override def getFileExtension(context: TaskAttemptContext): String =
    stock.getFileExtension(context)

  override def newInstance(
      path: String,
      dataSchema: StructType,
      context: TaskAttemptContext
  ): OutputWriter = {
    val writer = stock.newInstance(path, dataSchema, context)
    files.add(1)
    TaskFiles.of(TaskContext.get()).planMetrics.foreach(_.ownFile())
    writer
  }
}

object RemoteWriterFactory {
  private val log = LoggerFactory.getLogger(getClass)

  /** Return the factory for a plan. */
  def create(session: SparkSession, format: String, plan: WritePlan): OutputWriterFactory =
    plan match {
      case ByWriter(stock, settings, command) =>
        val metrics = WriteMetrics.ofStage(session.sparkContext)
        QuerySpans.begin(settings.connection, session.sparkContext)
        new RemoteWriterFactory(stock, settings, command.toByteArray, metrics)
      case BySpark(stock, reason) =>
        log.warn(own(format, reason))
        new OwnWriterFactory(stock, WriteMetrics.ofOwnFiles(session.sparkContext, reason))
      case LeftToSpark(stock, reason) =>
        log.info(own(format, reason))
        new OwnWriterFactory(stock, WriteMetrics.ofOwnFiles(session.sparkContext, reason))
    }

  private def own(format: String, reason: String): String =
    s"$format: Spark's own writer makes these files, because of $reason"
}
