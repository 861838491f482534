// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write

import scala.jdk.CollectionConverters._

import org.apache.hadoop.conf.Configuration
import org.apache.parquet.hadoop.ParquetOutputFormat
import org.apache.spark.sql.execution.datasources.parquet.ParquetWriteSupport
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types._

import io.updraft.proto.v1.{
  BloomFilter,
  Codec,
  Compression,
  Dictionaries,
  ParquetOptions,
  Rebase,
  TimestampType => StoredTimestamps,
  WriteCommand
}

/** Translation of Spark's Parquet settings to a writer's command. Like Spark's own writer, it reads
  * the options from the job under Spark's names. It reports what a writer cannot do.
  */
object ParquetPlan {
  private val BloomPrefix = "parquet.bloom.filter."

  /** Parquet's own default level, which differs from that of the writer's library. */
  private val ZstdLevel = 3
  private val GzipLevel = 6

  /** Complete the command, or return why the writer cannot make the files. */
  def command(
      builder: WriteCommand.Builder,
      schema: StructType,
      conf: Configuration
  ): Either[String, WriteCommand] =
    for {
      _ <- unsupported(schema, conf).toLeft(())
      compression <- compression(conf)
      times <- times(schema, conf)
    } yield builder
      .mergeParquet(options(conf).setCompression(compression).mergeFrom(times).build())
      .putAllFooter(footer(conf))
      .build()

  /** Return the footer's key-value pairs as Spark itself writes them. */
  private def footer(conf: Configuration): java.util.Map[String, String] =
    new ParquetWriteSupport().init(conf).getExtraMetaData

  private def unsupported(schema: StructType, conf: Configuration): Option[String] =
    typeReason(schema).orElse(unsupported(conf))

  /** Return why the writer cannot make files with these columns; None if it can. */
  def typeReason(schema: StructType): Option[String] =
    StoredSchema.leaves(schema).collectFirst {
      case leaf if !isSupported(leaf) => s"the type ${leaf.sql}"
    }

  /** Return whether the writer supports a type; the time-of-day type was added in Spark 4.1. */
  private def isSupported(leaf: DataType): Boolean =
    StoredSchema.isWritten(leaf) || leaf.typeName.startsWith("time(")

  private def unsupported(conf: Configuration): Option[String] = {
    def setting(key: String, holds: String => Boolean) =
      Option(conf.get(key)).filter(holds).map(value => s"$key = $value")
    setting(SQLConf.PARQUET_WRITE_LEGACY_FORMAT.key, _ == "true")
      .orElse(setting("parquet.crypto.factory.class", _.nonEmpty))
      .orElse(setting(ParquetOutputFormat.WRITER_VERSION, !Set("PARQUET_1_0", "v1").contains(_)))
      .orElse(setting(BloomPrefix + "enabled", _ == "true"))
  }

  private def compression(conf: Configuration): Either[String, Compression] = {
    val builder = Compression.newBuilder()
    conf.get(ParquetOutputFormat.COMPRESSION) match {
      case "UNCOMPRESSED" => Right(builder.setCodec(Codec.CODEC_NONE).build())
      case "SNAPPY" => Right(builder.setCodec(Codec.CODEC_SNAPPY).build())
      case "LZ4_RAW" => Right(builder.setCodec(Codec.CODEC_LZ4).build())
      case "GZIP" => Right(builder.setCodec(Codec.CODEC_GZIP).setLevel(GzipLevel).build())
      case "ZSTD" =>
        val level = conf.getInt("parquet.compression.codec.zstd.level", ZstdLevel)
        Right(builder.setCodec(Codec.CODEC_ZSTD).setLevel(level).build())
      case other => Left(s"the codec $other")
    }
  }

  /** Return the calendars and the type in which dates and timestamps are stored. */
  private def times(schema: StructType, conf: Configuration): Either[String, ParquetOptions] = {
    val sql = SQLConf.get
    val stored = timestamps(conf)
    val dates = sql.getConfString(SQLConf.PARQUET_REBASE_MODE_IN_WRITE.key)
    val int96 = sql.getConfString(SQLConf.PARQUET_INT96_REBASE_MODE_IN_WRITE.key)
    val ofInstants = if (stored == StoredTimestamps.TIMESTAMP_TYPE_INT96) int96 else dates
    val hasInstants = StoredSchema.leaves(schema).contains(TimestampType)
    // Before 1900, Java's time zones follow rules that the writer does not implement.
    if (hasInstants && ofInstants == "LEGACY" && sql.sessionLocalTimeZone != "UTC")
      Left(s"timestamps in rebase mode LEGACY in the time zone ${sql.sessionLocalTimeZone}")
    else Right(
      ParquetOptions
        .newBuilder()
        .setTimestamps(stored)
        .setRebase(rebase(dates))
        .setInt96Rebase(rebase(int96))
        .setTimeZone(sql.sessionLocalTimeZone)
        .build()
    )
  }

  private def rebase(mode: String): Rebase = Rebase.valueOf(s"REBASE_$mode")

  private def timestamps(conf: Configuration): StoredTimestamps =
    conf.get(SQLConf.PARQUET_OUTPUT_TIMESTAMP_TYPE.key) match {
      case "TIMESTAMP_MICROS" => StoredTimestamps.TIMESTAMP_TYPE_MICROS
      case "TIMESTAMP_MILLIS" => StoredTimestamps.TIMESTAMP_TYPE_MILLIS
      case _ => StoredTimestamps.TIMESTAMP_TYPE_INT96
    }

  private def options(conf: Configuration): ParquetOptions.Builder = ParquetOptions
    .newBuilder()
    .setRowGroupBytes(ParquetOutputFormat.getLongBlockSize(conf))
    .setRowGroupRows(conf.getLong("parquet.block.row.count.limit", 0))
    .setPageBytes(ParquetOutputFormat.getPageSize(conf).toLong)
    .setDictionaries(
      if (ParquetOutputFormat.getEnableDictionary(conf)) Dictionaries.DICTIONARIES_SAMPLED
      else Dictionaries.DICTIONARIES_NEVER
    )
    .setStatistics(conf.getBoolean("parquet.column.statistics.enabled", true))
    .setPageIndex(true)
    .setPageChecksums(ParquetOutputFormat.getPageWriteChecksumEnabled(conf))
    .addAllBloomFilters(bloomFilters(conf).asJava)

  private def bloomFilters(conf: Configuration): Seq[BloomFilter] =
    conf.getPropsWithPrefix(BloomPrefix + "enabled#").asScala.toSeq.collect {
      case (column, "true") =>
        BloomFilter
          .newBuilder()
          .setColumn(column)
          .setDistinctValues(conf.getLong(s"${BloomPrefix}expected.ndv#$column", 0))
          .setFalsePositiveProbability(conf.getDouble(s"${BloomPrefix}fpp#$column", 0))
          .build()
    }
}
