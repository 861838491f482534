// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.sql.SaveMode
import org.apache.spark.sql.catalyst.catalog.CatalogTable
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan

/** Extractor for the command of `saveAsTable`, which exists since Spark 4.1. */
object SaveAsTable {
  def unapply(plan: LogicalPlan): Option[(CatalogTable, SaveMode, LogicalPlan)] = None
}
