// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write.delta

import org.apache.spark.sql.delta.actions.{Metadata, Protocol}

/** Rules about the Delta tables whose data files a writer may make. The first rule that applies
  * gives the fallback reason. [[io.updraft.spark.write.ParquetPlan]] has the rules about types and
  * Parquet's options.
  */
object DeltaRules {

  /** Versions of Delta's protocol that these rules know. */
  private val ReaderVersion = 3
  private val WriterVersion = 7

  /** Table features for which a file's writer needs only the rows and the schema that Delta passes
    * to the writer.
    */
  private val Features = Set(
    "allowColumnDefaults",
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "checkpointProtection",
    "clustering",
    "columnMapping",
    "deletionVectors",
    "domainMetadata",
    "generatedColumns",
    "identityColumns",
    "inCommitTimestamp",
    "inCommitTimestamp-preview",
    "invariants",
    "rowTracking",
    "timestampNtz",
    "typeWidening",
    "typeWidening-preview",
    "v2Checkpoint",
    "vacuumProtocolCheck"
  )

  /** Releases of Delta whose classes the connector extends: one for Spark 3.5, one for Spark 4.
    * Another release may call methods that the connector's classes lack, even after a commit.
    */
  private val Releases = Seq("3.3", "4.4")

  private type Rule = (Protocol, Metadata) => Option[String]

  private val rules: Seq[Rule] = Seq(
    (protocol, _) =>
      if (protocol.minReaderVersion <= ReaderVersion && protocol.minWriterVersion <= WriterVersion)
        None
      else
        Some(
          s"Delta's protocol in version ${protocol.minReaderVersion} of readers and " +
            s"${protocol.minWriterVersion} of writers"
        ),
    // With these properties, Delta's own writer adds ids of nested fields to the schema of the
    // files.
    (_, metadata) =>
      metadata.configuration.collectFirst {
        case (key, "true") if key.startsWith("delta.enableIcebergCompat") => s"$key = true"
      },
    (protocol, _) =>
      (protocol.readerFeatureNames ++ protocol.writerFeatureNames -- Features).toSeq.sorted.headOption
        .map(feature => s"the table feature $feature")
  )

  /** Return why the connector does not support this version of Delta; None if it does. */
  def versionReason(version: String): Option[String] =
    if (Releases.exists(release => version.startsWith(release + "."))) None
    else Some(s"Delta's version $version: the connector knows ${Releases.mkString(" and ")}")

  /** Return why a writer must not make a table's data files; None if it may. */
  def reason(protocol: Protocol, metadata: Metadata): Option[String] =
    rules.iterator.flatMap(rule => rule(protocol, metadata)).find(_ => true)
}
