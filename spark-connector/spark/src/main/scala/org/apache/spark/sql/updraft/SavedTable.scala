// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import scala.util.Try

import org.apache.hadoop.fs.Path
import org.apache.spark.sql.catalyst.catalog.CatalogTable
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.execution.command.CreateDataSourceTableAsSelectCommand
import org.apache.spark.sql.execution.datasources.DataSource
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.{SaveMode, SparkSession}

/** Table that `saveAsTable` overwrites. Spark drops the table and creates it again from the query.
  * The step that drops the table depends on the patch release: a command of `saveAsTable`, the
  * command that creates the table, or the insert. Before Spark 4.0.5, `DataFrameWriter` drops the
  * table before it makes a plan.
  */
final class SavedTable(table: CatalogTable, query: LogicalPlan) {

  /** Return the data source that the table's provider names, or null if there is no such data
    * source. Spark itself reports a wrong provider.
    */
  def format(session: SparkSession): Any =
    table.provider.flatMap { provider =>
      Try(
        DataSource
          .lookupDataSource(provider, session.sessionState.conf)
          .getDeclaredConstructor()
          .newInstance()
      ).toOption
    }.orNull

  def location(session: SparkSession): Path = new Path(
    table.storage.locationUri.getOrElse(
      session.sessionState.catalog.defaultTablePath(table.identifier)
    )
  )

  /** Return the schema of the files, without the partition columns. */
  def dataSchema(session: SparkSession): StructType = {
    val same = session.sessionState.conf.resolver
    StructType(query.schema.filterNot { field =>
      table.partitionColumnNames.exists(same(_, field.name))
    })
  }

  def options: Map[String, String] = table.storage.properties
}

object SavedTable {
  def unapply(plan: LogicalPlan): Option[SavedTable] = plan match {
    case SaveAsTable(table, SaveMode.Overwrite, query) => Some(new SavedTable(table, query))
    case CreateDataSourceTableAsSelectCommand(table, SaveMode.Overwrite, query, _) =>
      Some(new SavedTable(table, query))
    case _ => None
  }
}
