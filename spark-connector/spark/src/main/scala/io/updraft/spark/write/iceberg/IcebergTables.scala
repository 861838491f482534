// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write.iceberg

import org.apache.iceberg.{IcebergBuild, Table}
import org.apache.spark.sql.connector.catalog.{Table => CatalogTable}
import org.slf4j.LoggerFactory

/** Iceberg's tables, in sessions with a version of Iceberg that the connector supports. */
object IcebergTables {
  private val log = LoggerFactory.getLogger(getClass)

  /** Package of the classes of tables that Iceberg gives to Spark. */
  private val Package = "org.apache.iceberg.spark.source."

  /** True if the connector supports this version of Iceberg. */
  private lazy val isKnown: Boolean = {
    val reason =
      try {
        IcebergInternals.probe()
        IcebergRules.versionReason(IcebergBuild.version())
      } catch {
        case error @ (_: ReflectiveOperationException | _: LinkageError) => Some(error.toString)
      }
    reason.foreach { text =>
      log.warn(s"iceberg: Iceberg's own writer makes data files, because of $text")
    }
    reason.isEmpty
  }

  /** Return whether a table of Spark's catalogs belongs to a version of Iceberg that the connector
    * supports. Call this before any method that names a class of Iceberg: the class may be missing.
    */
  def has(table: CatalogTable): Boolean = table.getClass.getName.startsWith(Package) && isKnown

  /** Return the Iceberg table inside a table of Spark's catalogs, if it has one. */
  def unwrapped(table: CatalogTable): Option[Table] =
    // Iceberg 1.12 has another class of tables for compaction than 1.11.
    Option(table.getClass.getMethod("table").invoke(table)).collect { case found: Table => found }
}
