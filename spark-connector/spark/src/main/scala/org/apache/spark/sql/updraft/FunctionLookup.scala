// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.connector.catalog.{FunctionCatalog, Identifier}

/** Lookup of functions in a place. A catalog does not say whether they return values or tables. */
object FunctionLookup {

  def hasValue(session: SparkSession, place: FunctionPlace): Boolean = place match {
    case FunctionPlace.System(name) => FunctionPath.systemHasValue(session, name)
    case other: FunctionPlace.Catalog => has(other)
    case FunctionPlace.Unknown => false
  }

  def hasTable(session: SparkSession, place: FunctionPlace): Boolean = place match {
    case FunctionPlace.System(name) => FunctionPath.systemHasTable(session, name)
    case other: FunctionPlace.Catalog => has(other)
    case FunctionPlace.Unknown => false
  }

  private def has(place: FunctionPlace.Catalog): Boolean = place.catalog match {
    case functions: FunctionCatalog =>
      functions.functionExists(Identifier.of(place.name.init.toArray, place.name.last))
    case _ => false
  }
}
