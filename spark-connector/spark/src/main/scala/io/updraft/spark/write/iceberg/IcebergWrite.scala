// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write.iceberg

import scala.jdk.CollectionConverters._

import org.apache.hadoop.fs.Path
import org.apache.iceberg.Table
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.updraft.SparkInternals
import org.slf4j.LoggerFactory

import io.updraft.spark.config.{UnknownNames, WriteConf, WriteSettings}
import io.updraft.spark.trace.QuerySpans
import io.updraft.spark.write.{SmallWrite, WriteMetrics, WriterAnswer}

/** Write of an Iceberg table that is planned but has not begun.
  *
  * @param options
  *   options of the write
  * @param query
  *   query of the rows; None for a stream
  */
final class IcebergWrite(
    val session: SparkSession,
    table: Table,
    options: Map[String, String],
    query: Option[LogicalPlan]
) {
  import IcebergWrite._

  /** Properties of the table, overridden by options and session settings in Iceberg's order of
    * precedence.
    */
  private val properties: Map[String, String] = {
    val tables = table.properties().asScala.toMap
    val conf = SparkInternals.conf(session)
    Overrides.foldLeft(tables) { case (all, (name, setting, property)) =>
      options
        .collectFirst { case (key, value) if key.equalsIgnoreCase(name) => value }
        .orElse(setting.flatMap(key => Option(conf.getConfString(key, null))))
        .fold(all)(value => all + (property -> value))
    }
  }

  /** Reason why the writer must not make the data files; None if it may. */
  private lazy val forbidden: Option[String] = IcebergRules.reason(table, properties)

  /** Reason why Iceberg makes the data files; None if the writer makes them. */
  lazy val reason: Option[String] =
    forbidden.orElse(query.flatMap(SmallWrite.reason(SparkInternals.conf(session), _, options)))

  /** Return whether all rows of a task go to one open file, in their order. */
  def keepsOrder: Boolean =
    table.spec().isUnpartitioned && !options.keys.exists(_.equalsIgnoreCase("output-spec-id"))

  /** True if Iceberg makes the data files; None until that is decided. */
  @volatile var madeByIceberg: Option[Boolean] = None

  /** Files for the writer; None if Iceberg makes them. The driver decides once, before the first
    * row is computed. Raise IllegalArgumentException for a wrong setting, and
    * UnsupportedOperationException if the writer cannot make the files and the session forbids
    * Iceberg's own writer.
    */
  lazy val files: Option[RemoteFiles] =
    Some(SparkInternals.conf(session)).filter(WriteConf.writesTables(_, "iceberg")).map { conf =>
      UnknownNames.warnOfSettings(session, conf)
      UnknownNames.warnOfOptions(session, options)
      val settings = WriteConf.settings(conf, options, "iceberg")
      (forbidden, settings.unsupported) match {
        case (Some(reason), "fail") => throw new UnsupportedOperationException(
            s"iceberg: the writer cannot make these files as Iceberg does: $reason. " +
              s"Set ${WriteConf.unsupported.key} = local to let Iceberg's own writer make them"
          )
        case _ => reason.orElse(problem(settings)).toLeft(settings)
      }
    }.map { decided =>
      madeByIceberg = Some(decided.isLeft)
      decided
    }.flatMap {
      case Left(reason) =>
        val text = s"iceberg: Iceberg's own writer makes these files, because of $reason"
        if (isChoice) log.info(text) else log.warn(text)
        None
      case Right(settings) =>
        val metrics = WriteMetrics.ofStage(session.sparkContext)
        QuerySpans.begin(settings.connection, session.sparkContext)
        Some(RemoteFiles(settings, metrics))
    }

  /** Return whether Iceberg makes the files although the writer could. */
  private def isChoice: Boolean = forbidden.isEmpty && reason.isDefined

  /** Return why the writer would not make the files. Return None if the session does not allow the
    * fallback to Iceberg's own writer.
    */
  private def problem(settings: WriteSettings): Option[String] =
    if (settings.fallback == "local") {
      val command = IcebergFiles.command(settings.command(), table.schema(), properties)
      val directory = new Path(table.locationProvider().newDataLocation("any")).getParent
      val conf = SparkInternals.hadoopConf(session, Map.empty)
      WriterAnswer.problem(session.sparkContext, settings, command, directory, conf)
    } else None

  override def toString: String =
    reason.fold("files by Updraft's writer")(reason => s"files by Iceberg, because of $reason")
}

object IcebergWrite {
  private val log = LoggerFactory.getLogger(getClass)

  /** Write options, each with the session setting and the table property of the same meaning. */
  private val Overrides = Seq(
    ("write-format", None, "write.format.default"),
    (
      "compression-codec",
      Some("spark.sql.iceberg.compression-codec"),
      "write.parquet.compression-codec"
    ),
    (
      "compression-level",
      Some("spark.sql.iceberg.compression-level"),
      "write.parquet.compression-level"
    )
  )
}
