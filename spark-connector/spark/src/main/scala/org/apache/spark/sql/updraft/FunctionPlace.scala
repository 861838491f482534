// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.analysis.AnalysisContext
import org.apache.spark.sql.connector.catalog.{CatalogPlugin, FunctionCatalog, Identifier}

/** A place in which Spark looks for a function. */
sealed trait FunctionPlace

object FunctionPlace {

  /** Spark's own functions, or the session's temporary ones. */
  final case class System(name: Seq[String]) extends FunctionPlace

  final case class Catalog(catalog: CatalogPlugin, name: Seq[String]) extends FunctionPlace

  /** Where Spark looks for a function of this name, in that order. */
  def of(session: SparkSession, name: Seq[String]): Seq[FunctionPlace] =
    FunctionPath.of(session, name)

  def hasValue(session: SparkSession, place: FunctionPlace): Boolean = place match {
    case System(name) => FunctionPath.systemHasValue(session, name)
    case other: Catalog => has(other)
  }

  def hasTable(session: SparkSession, place: FunctionPlace): Boolean = place match {
    case System(name) => FunctionPath.systemHasTable(session, name)
    case other: Catalog => has(other)
  }

  /** The place of a name that may begin with a catalog. In a view that is the one in which the view
    * was made.
    */
  private[updraft] def inCatalog(session: SparkSession, name: Seq[String]): FunctionPlace = {
    val catalogs = session.sessionState.catalogManager
    val inView = AnalysisContext.get.catalogAndNamespace
    val catalog = inView.headOption.fold(catalogs.currentCatalog)(catalogs.catalog(_))
    if (name.length > 1 && catalogs.isCatalogRegistered(name.head))
      Catalog(catalogs.catalog(name.head), name.tail)
    else if (name.length > 1) Catalog(catalog, name)
    else Catalog(
      catalog,
      inView.headOption.fold(catalogs.currentNamespace.toSeq)(_ => inView.tail) ++ name
    )
  }

  private def has(place: Catalog): Boolean = place.catalog match {
    case functions: FunctionCatalog =>
      functions.functionExists(Identifier.of(place.name.init.toArray, place.name.last))
    case _ => false
  }
}
