// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write

import scala.jdk.CollectionConverters._

import org.apache.hadoop.conf.Configuration
import org.apache.spark.SPARK_VERSION_SHORT
import org.apache.spark.sql.types._

import io.updraft.proto.v1.{Codec, Compression, OrcOptions, WriteCommand}

/** Translation of Spark's ORC settings to a writer's command. It passes ORC's options on under
  * ORC's names and reports what a writer cannot do.
  */
object OrcPlan {

  /** Options that the writer's library does not support. */
  private val Foreign = Seq("orc.encrypt", "orc.mask")
  private val BloomColumns = "orc.bloom.filter.columns"

  /** Reason for refusing timestamps. The type alone decides, before the first row, because values
    * are known only while the file is being written.
    */
  private val Timestamps =
    "the type TIMESTAMP in ORC (the writer cannot store fractions of a second before 1970)"

  /** Complete the command, or return why the writer cannot make the files. */
  def command(
      builder: WriteCommand.Builder,
      schema: StructType,
      conf: Configuration
  ): Either[String, WriteCommand] =
    for {
      _ <- unsupported(schema, conf).toLeft(())
      codec <- codec(conf)
    } yield builder
      .setOrc(
        OrcOptions
          .newBuilder()
          .setCompression(Compression.newBuilder().setCodec(codec))
          .setStripeBytes(conf.getLong("orc.stripe.size", 0))
          .setRowIndexStride(conf.getLong("orc.row.index.stride", 0))
          .addAllBloomFilterColumns(bloomColumns(conf).asJava)
          .setBloomFilterFalsePositiveProbability(conf.getDouble("orc.bloom.filter.fpp", 0))
      )
      .putFooter("org.apache.spark.version", SPARK_VERSION_SHORT)
      .build()

  private def unsupported(schema: StructType, conf: Configuration): Option[String] = {
    val leaves = StoredSchema.leaves(schema)
    leaves.find(!StoredSchema.isWritten(_)).map(leaf => s"the type ${leaf.sql} in ORC")
      .orElse(leaves.find(_ == TimestampType).map(_ => Timestamps))
      .orElse(Foreign.find(conf.get(_) != null).map(key => s"$key = ${conf.get(key)}"))
      .orElse(bloomColumns(conf).find(!schema.fieldNames.contains(_)).map(column =>
        s"$column in $BloomColumns (not a top-level column)"
      ))
  }

  private def bloomColumns(conf: Configuration): Seq[String] =
    conf.getTrimmedStrings(BloomColumns).toSeq

  private def codec(conf: Configuration): Either[String, Codec] = conf.get("orc.compress") match {
    case "NONE" => Right(Codec.CODEC_NONE)
    case "SNAPPY" => Right(Codec.CODEC_SNAPPY)
    case "ZLIB" => Right(Codec.CODEC_GZIP)
    case "ZSTD" => Right(Codec.CODEC_ZSTD)
    case "LZ4" => Right(Codec.CODEC_LZ4)
    case other => Left(s"the codec $other")
  }
}
