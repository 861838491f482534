// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write.iceberg

import java.util.Locale

import scala.jdk.CollectionConverters._
import scala.util.Try

import org.apache.arrow.vector.types.pojo.{Field, FieldType, Schema => ArrowSchema}
import org.apache.iceberg.avro.AvroSchemaUtil
import org.apache.iceberg.types.Types.NestedField
import org.apache.iceberg.types.{Type, Types}
import org.apache.iceberg.{Schema, SchemaParser}
import org.apache.spark.sql.types._
import org.apache.spark.sql.updraft.ArrowSchemas

import io.updraft.proto.v1.{
  Codec,
  Compression,
  Dictionaries,
  ParquetOptions,
  Rebase,
  TimestampType => StoredTimestamps,
  WriteCommand
}
import io.updraft.spark.write.FileColumns

/** Translation of Iceberg's schemas and properties of Parquet files to a writer's command. Names,
  * field ids and the footer's keys are those of Iceberg's own files.
  */
object IcebergFiles {
  private val Prefix = "write.parquet."

  /** Metadata key of a field's Parquet id in Arrow. */
  private val ArrowFieldId = "PARQUET:field_id"

  /** Default level of Iceberg's Parquet library. */
  private val ZstdLevel = 3
  private val GzipLevel = 6

  private val DefaultRowGroupBytes = "134217728"
  private val DefaultPageBytes = "1048576"

  /** Return the command for files with this schema, which [[IcebergRules]] must allow. */
  def command(
      builder: WriteCommand.Builder,
      schema: Schema,
      properties: Map[String, String]
  ): WriteCommand = builder
    .setInTable(true)
    .mergeParquet(
      ParquetOptions
        .newBuilder()
        .setRowGroupBytes(bytes(properties, "row-group-size-bytes", DefaultRowGroupBytes))
        .setPageBytes(bytes(properties, "page-size-bytes", DefaultPageBytes))
        .setDictionaries(Dictionaries.DICTIONARIES_SAMPLED)
        .setStatistics(true)
        .setPageIndex(true)
        .setPageChecksums(true)
        .setTimestamps(StoredTimestamps.TIMESTAMP_TYPE_MICROS)
        .setRebase(Rebase.REBASE_CORRECTED)
        .setInt96Rebase(Rebase.REBASE_CORRECTED)
        .setTimeZone("UTC")
        .setCompression(
          compression(properties).fold(
            reason => throw new IllegalArgumentException(reason),
            identity
          )
        )
        .build()
    )
    .putFooter("iceberg.schema", SchemaParser.toJson(schema))
    .build()

  private def bytes(properties: Map[String, String], name: String, default: String): Long =
    properties.getOrElse(Prefix + name, default).toLong

  /** Return the compression, or why the writer does not support it. */
  def compression(properties: Map[String, String]): Either[String, Compression] = {
    val builder = Compression.newBuilder()
    val level = properties.get(Prefix + "compression-level")
    // Iceberg assumes gzip if the property is missing, although it creates tables with zstd.
    properties.getOrElse(Prefix + "compression-codec", "gzip").toLowerCase(Locale.ROOT) match {
      case "uncompressed" => Right(builder.setCodec(Codec.CODEC_NONE).build())
      case "snappy" => Right(builder.setCodec(Codec.CODEC_SNAPPY).build())
      case "lz4_raw" => Right(builder.setCodec(Codec.CODEC_LZ4).build())
      // Iceberg's own writer expects one of Hadoop's names for the level, such as BEST_SPEED.
      case "gzip" if level.isDefined => Left(s"the level ${level.mkString} of gzip")
      case "gzip" => Right(builder.setCodec(Codec.CODEC_GZIP).setLevel(GzipLevel).build())
      case "zstd" =>
        level
          .fold(Option(ZstdLevel))(text => Try(text.toInt).toOption)
          .map(found => builder.setCodec(Codec.CODEC_ZSTD).setLevel(found).build())
          .toRight(s"the level ${level.mkString} of zstd")
      case other => Left(s"the codec $other")
    }
  }

  /** Return the columns of files with this schema. */
  def columns(schema: Schema): FileColumns = {
    val fields = schema.columns().asScala.toSeq
    val plain = ArrowSchemas.of(struct(fields), "UTC", largeVarTypes = false).getFields.asScala
    val arrow = fields.zip(plain).map { case (field, arrow) => named(field, arrow) }
    FileColumns(fields.map(field => sparkType(field.`type`())), new ArrowSchema(arrow.asJava))
  }

  private def struct(fields: Seq[NestedField]): StructType = StructType(fields.map { field =>
    StructField(field.name(), sparkType(field.`type`()), nullable = field.isOptional)
  })

  /** Return the type of a row's values. */
  private def sparkType(of: Type): DataType = of match {
    case nested: Types.StructType => struct(nested.fields().asScala.toSeq)
    case list: Types.ListType => ArrayType(sparkType(list.elementType()), list.isElementOptional)
    case map: Types.MapType =>
      MapType(sparkType(map.keyType()), sparkType(map.valueType()), map.isValueOptional)
    case decimal: Types.DecimalType => DecimalType(decimal.precision(), decimal.scale())
    case timestamp: Types.TimestampType =>
      if (timestamp.shouldAdjustToUTC()) TimestampType else TimestampNTZType
    case other =>
      other.typeId() match {
        case Type.TypeID.BOOLEAN => BooleanType
        case Type.TypeID.INTEGER => IntegerType
        case Type.TypeID.LONG => LongType
        case Type.TypeID.FLOAT => FloatType
        case Type.TypeID.DOUBLE => DoubleType
        case Type.TypeID.DATE => DateType
        case Type.TypeID.STRING => StringType
        case Type.TypeID.BINARY => BinaryType
        case _ => throw new IllegalArgumentException(s"the type $other")
      }
  }

  /** Return a column, or the field of a struct, with its name in the file and its ids. */
  private def named(field: NestedField, plain: Field): Field =
    identified(field, AvroSchemaUtil.makeCompatibleName(field.name()), plain)

  private def identified(field: NestedField, name: String, plain: Field): Field = {
    val metadata = Map(ArrowFieldId -> field.fieldId().toString).asJava
    val fieldType =
      new FieldType(plain.isNullable, plain.getType, plain.getDictionary, metadata)
    new Field(name, fieldType, children(field.`type`(), plain.getChildren.asScala.toSeq).asJava)
  }

  private def children(of: Type, plain: Seq[Field]): Seq[Field] = of match {
    case nested: Types.StructType =>
      nested.fields().asScala.toSeq.zip(plain).map { case (field, arrow) => named(field, arrow) }
    case list: Types.ListType =>
      list.fields().asScala.toSeq.zip(plain).map(inner)
    case map: Types.MapType =>
      val pair = map.fields().asScala.toSeq.zip(plain.head.getChildren.asScala).map(inner)
      Seq(new Field(plain.head.getName, plain.head.getFieldType, pair.asJava))
    case _ => plain
  }

  private def inner(part: (NestedField, Field)): Field =
    identified(part._1, part._2.getName, part._2)
}
