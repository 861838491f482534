// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.sql.SparkSession

/** Order in which Spark looks for functions: first its own functions, then the current namespace.
  */
object FunctionPath {

  /** Return the places where Spark looks for a function of this name. The list is lazy: a catalog
    * is loaded only when its place is evaluated.
    */
  def of(session: SparkSession, name: Seq[String]): Seq[FunctionPlace] = {
    val inCatalog = () => FunctionPlace.inCatalog(session, name)
    if (name.length > 1) LazySequence.of(inCatalog)
    else LazySequence.of(() => FunctionPlace.System(name), inCatalog)
  }

  def systemHasValue(session: SparkSession, name: Seq[String]): Boolean =
    session.sessionState.catalog.lookupBuiltinOrTempFunction(name.last).isDefined

  def systemHasTable(session: SparkSession, name: Seq[String]): Boolean =
    session.sessionState.catalog.lookupBuiltinOrTempTableFunction(name.last).isDefined
}
