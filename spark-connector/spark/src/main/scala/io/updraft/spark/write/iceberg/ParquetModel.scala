// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write.iceberg

import java.nio.ByteBuffer

import scala.collection.mutable

import org.apache.iceberg.encryption.EncryptedOutputFile
import org.apache.iceberg.formats.{FormatModel, ModelWriteBuilder, ReadBuilder}
import org.apache.iceberg.hadoop.HadoopOutputFile
import org.apache.iceberg.io.{FileAppender, InputFile}
import org.apache.iceberg.{FileContent, FileFormat, MetricsConfig, Schema}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.types.StructType
import org.slf4j.LoggerFactory

import io.updraft.spark.write.StoredSchema

/** Iceberg's model of Parquet files with Spark's rows. In a task of [[RemoteFiles]], a writer makes
  * the data files.
  *
  * Iceberg makes each writer of a file from the model in its registry. So it is enough to replace
  * the model. All code above a single file remains Iceberg's own, such as partitions, fan-out,
  * target sizes, row lineage, delete files and commits.
  */
final class ParquetModel(stock: FormatModel[InternalRow, StructType])
    extends FormatModel[InternalRow, StructType] {

  override def format(): FileFormat = stock.format()

  override def `type`(): Class[_ <: InternalRow] = stock.`type`()

  override def schemaType(): Class[StructType] = stock.schemaType()

  override def readBuilder(file: InputFile): ReadBuilder[InternalRow, StructType] =
    stock.readBuilder(file)

  override def writeBuilder(
      file: EncryptedOutputFile
  ): ModelWriteBuilder[InternalRow, StructType] =
    RemoteFiles.current.fold(stock.writeBuilder(file)) { files =>
      new RemoteBuilder(stock.writeBuilder(file), file, files)
    }
}

object ParquetModel {

  private lazy val installed: Unit =
    IcebergInternals.replaceParquetModel(classOf[InternalRow]) { stock =>
      new ParquetModel(stock.asInstanceOf[FormatModel[InternalRow, StructType]])
    }

  /** Put the model into this JVM's registry, once. */
  def install(): Unit = installed
}

/** Builder of one file. It also passes all values on to Iceberg's own builder, which makes the file
  * if it is a delete file or the rules exclude it.
  */
private final class RemoteBuilder(
    stock: ModelWriteBuilder[InternalRow, StructType],
    file: EncryptedOutputFile,
    files: RemoteFiles
) extends ModelWriteBuilder[InternalRow, StructType] {
  import RemoteBuilder.{Builder, log}

  private[this] val properties = mutable.Map.empty[String, String]
  private[this] val keyValues = mutable.Map.empty[String, String]
  private[this] var content = FileContent.DATA
  private[this] var columns: Schema = _
  private[this] var rows: Option[StructType] = None
  private[this] var config = MetricsConfig.getDefault
  private[this] var isEncrypted = false

  override def schema(schema: Schema): Builder = {
    columns = schema
    stock.schema(schema)
    this
  }

  override def engineSchema(schema: StructType): Builder = {
    rows = Option(schema)
    stock.engineSchema(schema)
    this
  }

  override def set(property: String, value: String): Builder = {
    properties(property) = value
    stock.set(property, value)
    this
  }

  override def meta(property: String, value: String): Builder = {
    keyValues(property) = value
    stock.meta(property, value)
    this
  }

  override def content(of: FileContent): Builder = {
    content = of
    stock.content(of)
    this
  }

  override def metricsConfig(metrics: MetricsConfig): Builder = {
    config = metrics
    stock.metricsConfig(metrics)
    this
  }

  override def overwrite(): Builder = {
    stock.overwrite()
    this
  }

  override def withFileEncryptionKey(key: ByteBuffer): Builder = {
    isEncrypted |= key != null
    stock.withFileEncryptionKey(key)
    this
  }

  override def withAADPrefix(prefix: ByteBuffer): Builder = {
    isEncrypted |= prefix != null
    stock.withAADPrefix(prefix)
    this
  }

  override def build(): FileAppender[InternalRow] = file.encryptingOutputFile() match {
    case target: HadoopOutputFile if content == FileContent.DATA && !isEncrypted =>
      reason match {
        case None => remote(target)
        case Some(reason) =>
          log.warn(s"iceberg: Iceberg's own writer makes ${target.getPath}, because of $reason")
          stock.build()
      }
    case _ => stock.build()
  }

  /** Return why the writer must not make the file. The driver has already applied the rules to the
    * table, but the file's schema may differ, and only Iceberg knows all properties.
    */
  private def reason: Option[String] =
    IcebergRules.reason(columns, properties.toMap).orElse {
      val stored = IcebergFiles.columns(columns).types
      rows.toSeq.flatMap(_.fields).map(_.dataType).zip(stored).collectFirst {
        case (row, column) if StoredSchema.leaves(row) != StoredSchema.leaves(column) =>
          s"rows with values of type ${row.sql} for a column of type ${column.sql}"
      }
    }

  private def remote(target: HadoopOutputFile): FileAppender[InternalRow] = {
    val builder = files.settings.command()
    keyValues.foreach { case (key, value) => builder.putFooter(key, value) }
    val command = IcebergFiles.command(builder, columns, properties.toMap)
    new RemoteAppender(target, columns, command, config, files)
  }
}

private object RemoteBuilder {
  type Builder = ModelWriteBuilder[InternalRow, StructType]

  private val log = LoggerFactory.getLogger(getClass)
}
