// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write.iceberg

import java.util.Locale

import scala.jdk.CollectionConverters._

import org.apache.iceberg.encryption.PlaintextEncryptionManager
import org.apache.iceberg.hadoop.HadoopFileIO
import org.apache.iceberg.types.{Type, TypeUtil}
import org.apache.iceberg.{Schema, Table}

/** Rules about the Iceberg tables whose data files a writer may make. The first rule that applies
  * gives the fallback reason.
  */
object IcebergRules {

  /** Releases of Iceberg whose classes the connector uses, some of them by reflection. */
  private val Releases = Seq("1.11", "1.12")

  private type Properties = Map[String, String]

  private val ofTable: Seq[Table => Option[String]] = Seq(
    table =>
      Some(table.encryption().getClass)
        .filter(_ != classOf[PlaintextEncryptionManager])
        .map(other => s"encryption by ${other.getName}"),
    // The writer and Spark open the files by Hadoop's URIs, which another file IO may not use.
    table =>
      Some(table.io().getClass)
        .filter(_ != classOf[HadoopFileIO])
        .map(other => s"the file IO ${other.getName}")
  )

  private val ofProperties: Seq[Properties => Option[String]] = Seq(
    properties =>
      Some(properties.getOrElse("write.format.default", "parquet"))
        .filter(!_.equalsIgnoreCase("parquet"))
        .map(format => s"the file format ${format.toLowerCase(Locale.ROOT)}"),
    properties =>
      properties.collectFirst {
        case (key, value) if key.startsWith("write.parquet.bloom-filter-enabled.") && isOn(value) =>
          s"$key = $value"
      },
    // The writer cannot turn statistics or dictionaries off for single columns.
    properties =>
      properties.collectFirst {
        case (key, value) if SwitchesPrefixes.exists(key.startsWith(_)) && !isOn(value) =>
          s"$key = $value"
      },
    properties =>
      properties
        .get("write.parquet.page-version")
        .filter(!_.equalsIgnoreCase("v1"))
        .map(version => s"write.parquet.page-version = $version"),
    // Iceberg passes these properties to its Parquet library unchanged.
    properties =>
      properties.collectFirst {
        case (key, value) if key.startsWith("parquet.") => s"$key = $value"
      },
    properties => IcebergFiles.compression(properties).left.toOption,
    // The location provider may name places that the writer may not write to.
    properties =>
      properties
        .get("write.location-provider.impl")
        .map(provider => s"write.location-provider.impl = $provider")
  )

  private val SwitchesPrefixes =
    Seq("write.parquet.stats-enabled.column.", "write.parquet.dict-encoding-enabled.column.")

  private def isOn(value: String): Boolean = value.trim.equalsIgnoreCase("true")

  /** Types that the writer stores as Iceberg does. */
  private val Types = Set(
    Type.TypeID.BOOLEAN,
    Type.TypeID.INTEGER,
    Type.TypeID.LONG,
    Type.TypeID.FLOAT,
    Type.TypeID.DOUBLE,
    Type.TypeID.DATE,
    Type.TypeID.TIMESTAMP,
    Type.TypeID.STRING,
    Type.TypeID.BINARY,
    Type.TypeID.DECIMAL,
    Type.TypeID.STRUCT,
    Type.TypeID.LIST,
    Type.TypeID.MAP
  )

  /** Return why the connector does not support this version of Iceberg; None if it does. */
  def versionReason(version: String): Option[String] =
    if (Releases.exists(release => version.startsWith(release + "."))) None
    else Some(s"Iceberg's version $version: the connector knows ${Releases.mkString(" and ")}")

  /** Return why a writer must not make files of this schema and with these properties; None if it
    * may.
    */
  def reason(schema: Schema, properties: Properties): Option[String] =
    first(ofProperties, properties).orElse(typeReason(schema))

  /** Return why a writer must not make a table's data files; None if it may.
    *
    * @param properties
    *   properties of the table, with the changes by the write's options and the session
    */
  def reason(table: Table, properties: Properties): Option[String] =
    first(ofTable, table).orElse(reason(table.schema(), properties))

  private def first[A](rules: Seq[A => Option[String]], subject: A): Option[String] =
    rules.iterator.flatMap(rule => rule(subject)).find(_ => true)

  private def typeReason(schema: Schema): Option[String] =
    TypeUtil
      .indexById(schema.asStruct())
      .values()
      .asScala
      .map(_.`type`())
      .collectFirst { case other if !Types(other.typeId()) => s"the type $other" }
}
