// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import scala.util.control.NonFatal

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.analysis.AnalysisContext
import org.apache.spark.sql.connector.catalog.CatalogPlugin

/** Place where Spark looks for a function. `FunctionPath` gives the order of places. */
sealed trait FunctionPlace

object FunctionPlace {

  /** Spark's own functions, or the session's temporary functions. */
  final case class System(name: Seq[String]) extends FunctionPlace

  final case class Catalog(catalog: CatalogPlugin, name: Seq[String]) extends FunctionPlace

  /** Catalog that the session lacks or cannot load. Spark reports the problem if its search reaches
    * this place.
    */
  case object Unknown extends FunctionPlace

  /** Return the place of a function whose name may begin with a catalog. In a view, names are
    * relative to the catalog in which the view was created.
    */
  private[updraft] def inCatalog(session: SparkSession, name: Seq[String]): FunctionPlace = {
    val catalogs = session.sessionState.catalogManager
    val inView = AnalysisContext.get.catalogAndNamespace
    def catalog = inView.headOption.fold(catalogs.currentCatalog)(catalogs.catalog(_))
    try
      if (name.length > 1 && catalogs.isCatalogRegistered(name.head))
        Catalog(catalogs.catalog(name.head), name.tail)
      else if (name.length > 1) Catalog(catalog, name)
      else Catalog(
        catalog,
        inView.headOption.fold(catalogs.currentNamespace.toSeq)(_ => inView.tail) ++ name
      )
    catch { case NonFatal(_) => Unknown }
  }
}
