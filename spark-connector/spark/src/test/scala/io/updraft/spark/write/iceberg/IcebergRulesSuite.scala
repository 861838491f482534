// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write.iceberg

import scala.jdk.CollectionConverters._

import org.apache.iceberg.types.Types
import org.apache.iceberg.types.Types.NestedField.{optional, required}
import org.apache.iceberg.{IcebergBuild, Schema}
import org.scalatest.funsuite.AnyFunSuite

class IcebergRulesSuite extends AnyFunSuite {
  private val plain = new Schema(required(1, "id", Types.LongType.get()))

  private def reason(properties: (String, String)*): Option[String] =
    IcebergRules.reason(plain, properties.toMap)

  test("only the releases of Iceberg that the connector knows are known") {
    assert(IcebergRules.versionReason(IcebergBuild.version()).isEmpty)
    assert(IcebergRules.versionReason("1.11.2").isEmpty)
    for (version <- Seq("1.10.1", "1.13.0", "1.120.0", "2.0.0"))
      assert(IcebergRules.versionReason(version).exists(_.contains(version)))
  }

  test("the parts of Iceberg that the connector reaches by reflection are there") {
    IcebergInternals.probe()
  }

  test("a table with properties that leave the content of files alone goes to the writer") {
    assert(reason().isEmpty)
    assert(reason(
      "write.format.default" -> "PARQUET",
      "write.parquet.compression-codec" -> "zstd",
      "write.parquet.page-version" -> "v1",
      "write.parquet.bloom-filter-enabled.column.id" -> "false",
      "write.target-file-size-bytes" -> "1"
    ).isEmpty)
  }

  test("a property that the writer cannot obey gives the reason") {
    for (
      (key, value) <- Seq(
        "write.parquet.bloom-filter-enabled.column.id" -> "true",
        "write.parquet.stats-enabled.column.id" -> "false",
        "write.parquet.page-version" -> "v2",
        "parquet.enable.dictionary" -> "true",
        "write.location-provider.impl" -> "com.example.Places"
      )
    ) assert(reason(key -> value).contains(s"$key = $value"))
    assert(reason("write.format.default" -> "orc").contains("the file format orc"))
    assert(reason("write.parquet.compression-codec" -> "brotli").contains("the codec brotli"))
    for ((codec, level) <- Seq("gzip" -> "BEST_SPEED", "zstd" -> "BEST_SPEED")) {
      val found = reason(
        "write.parquet.compression-codec" -> codec,
        "write.parquet.compression-level" -> level
      )
      assert(found.contains(s"the level $level of $codec"))
    }
  }

  test("a type that the writer stores differently gives the reason, however deep it is") {
    for (
      of <- Seq(
        Types.UUIDType.get(),
        Types.FixedType.ofLength(3),
        Types.VariantType.get(),
        Types.TimestampNanoType.withZone()
      )
    ) {
      val deep = Types.ListType.ofOptional(2, Types.StructType.of(optional(3, "a", of)))
      val found =
        IcebergRules.reason(new Schema(optional(1, "list", deep)), Map.empty[String, String])
      assert(found.contains(s"the type $of"))
    }
  }

  test("columns have Iceberg's names and ids, at every level") {
    val key = required(3, "key", Types.StringType.get())
    val map = Types.MapType.ofOptional(
      3,
      4,
      key.`type`(),
      Types.ListType.ofRequired(5, Types.DateType.get())
    )
    val struct = Types.StructType.of(optional(6, "in side", map))
    val columns = IcebergFiles.columns(new Schema(required(1, "a b", struct)))
    val field = columns.arrow.getFields.asScala.head
    val inner = field.getChildren.asScala.head
    val pair = inner.getChildren.asScala.head.getChildren.asScala
    val element = pair(1).getChildren.asScala.head
    val found = (Seq(field, inner) ++ pair :+ element).map { it =>
      (it.getName, it.getMetadata.get("PARQUET:field_id"), it.isNullable)
    }
    assert(found == Seq(
      ("a_x20b", "1", false),
      ("in_x20side", "6", true),
      ("key", "3", false),
      ("value", "4", true),
      ("element", "5", false)
    ))
  }
}
