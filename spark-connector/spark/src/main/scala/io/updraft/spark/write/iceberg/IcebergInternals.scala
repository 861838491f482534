// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write.iceberg

import java.lang.reflect.{InvocationTargetException, Method}
import java.util.stream.Stream

import scala.jdk.CollectionConverters._

import org.apache.iceberg.formats.{FormatModel, FormatModelRegistry}
import org.apache.iceberg.shaded.org.apache.parquet.hadoop.metadata.ParquetMetadata
import org.apache.iceberg.shaded.org.apache.parquet.schema.MessageType
import org.apache.iceberg.util.Pair
import org.apache.iceberg.{FieldMetrics, FileFormat, Metrics, MetricsConfig, Schema}

/** Access to the two parts of Iceberg that the connector needs and that are visible only inside
  * Iceberg's packages. [[IcebergRules.versionReason]] rejects releases that may lack these parts.
  */
object IcebergInternals {
  private type Models = java.util.Map[Pair[FileFormat, Class[_]], FormatModel[_, _]]

  private lazy val modelsMethod = method(classOf[FormatModelRegistry], "models")

  private lazy val metricsMethod = method(
    Class.forName(
      "org.apache.iceberg.parquet.ParquetMetrics",
      true,
      classOf[FormatModelRegistry].getClassLoader
    ),
    "metrics",
    classOf[Schema],
    classOf[MessageType],
    classOf[MetricsConfig],
    classOf[ParquetMetadata],
    classOf[Stream[_]]
  )

  /** Raise a LinkageError or ReflectiveOperationException if one of the parts is missing. */
  def probe(): Unit = {
    modelsMethod
    metricsMethod: Unit
  }

  /** Replace the model of Parquet files for one type of rows. Iceberg's registry has no call that
    * replaces a model.
    */
  def replaceParquetModel(rows: Class[_])(replacement: FormatModel[_, _] => FormatModel[_, _])
      : Unit =
    classOf[FormatModelRegistry].synchronized {
      val models = call(modelsMethod).asInstanceOf[Models]
      val key = Pair.of[FileFormat, Class[_]](FileFormat.PARQUET, rows)
      models.put(key, replacement(models.get(key))): Unit
    }

  /** Return a file's metrics as Iceberg's own writer computes them from the file's footer.
    *
    * @param counted
    *   metrics that take precedence over the footer's
    */
  def metrics(
      schema: Schema,
      config: MetricsConfig,
      footer: ParquetMetadata,
      counted: Seq[FieldMetrics[_]]
  ): Metrics = call(
    metricsMethod,
    schema,
    footer.getFileMetaData.getSchema,
    config,
    footer,
    counted.asJava.stream()
  ).asInstanceOf[Metrics]

  private def method(owner: Class[_], name: String, parameters: Class[_]*): Method = {
    val found = owner.getDeclaredMethod(name, parameters: _*)
    found.setAccessible(true)
    found
  }

  private def call(method: Method, arguments: AnyRef*): AnyRef =
    try method.invoke(null, arguments: _*)
    catch { case e: InvocationTargetException => throw e.getCause }
}
