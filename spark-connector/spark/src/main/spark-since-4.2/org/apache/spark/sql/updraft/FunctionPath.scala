// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.analysis.{AnalysisContext, FunctionResolution}
import org.apache.spark.sql.connector.catalog.CatalogManager
import org.apache.spark.sql.internal.SQLConf

/** Order in which Spark looks for functions, according to
  * `spark.sql.functionResolution.sessionOrder` and `SET PATH`.
  */
object FunctionPath {

  /** Return the places where Spark looks for a function of this name. The list is lazy: a catalog
    * is loaded only when its place is evaluated.
    */
  def of(session: SparkSession, name: Seq[String]): Seq[FunctionPlace] =
    LazySequence.of(candidates(session, name).map(name => () => place(session, name)): _*)

  def systemHasValue(session: SparkSession, name: Seq[String]): Boolean =
    systemHas(session, name, table = false)

  def systemHasTable(session: SparkSession, name: Seq[String]): Boolean =
    systemHas(session, name, table = true)

  private def candidates(session: SparkSession, name: Seq[String]): Seq[Seq[String]] =
    if (name.length == 1) path(session).map(_ ++ name)
    else if (name.length == 2 && FunctionResolution.sessionNamespaceKind(name).isDefined) {
      val both = Seq(CatalogManager.SYSTEM_CATALOG_NAME +: name, name)
      if (SQLConf.get.prioritizeSystemCatalog) both else both.reverse
    } else Seq(name)

  private def path(session: SparkSession): Seq[Seq[String]] = {
    val context = AnalysisContext.get
    session.sessionState.catalogManager
      .resolutionPathEntriesForAnalysis(context.resolutionPathEntries, context.catalogAndNamespace)
  }

  private def place(session: SparkSession, name: Seq[String]): FunctionPlace =
    if (name.length == 3 && name.head.equalsIgnoreCase(CatalogManager.SYSTEM_CATALOG_NAME))
      FunctionPlace.System(name)
    else FunctionPlace.inCatalog(session, name)

  private def systemHas(session: SparkSession, name: Seq[String], table: Boolean): Boolean = {
    val functions = session.sessionState.catalog
    functions
      .identifierFromSystemNameParts(name)
      .exists(functions.lookupFunctionInfoByIdentifier(_, table).isDefined)
  }
}
