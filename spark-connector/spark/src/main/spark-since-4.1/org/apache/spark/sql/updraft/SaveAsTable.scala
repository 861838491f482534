// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.sql.SaveMode
import org.apache.spark.sql.catalyst.catalog.CatalogTable
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.execution.command.SaveAsV1TableCommand

/** Extractor for the command of `saveAsTable`, which exists since Spark 4.1. */
object SaveAsTable {
  def unapply(plan: LogicalPlan): Option[(CatalogTable, SaveMode, LogicalPlan)] = plan match {
    case SaveAsV1TableCommand(table, mode, query) => Some((table, mode, query))
    case _ => None
  }
}
