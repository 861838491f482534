// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.sql.SparkSession

/** Names without a namespace that Spark looks for in no catalog: it has such a function itself, or
  * the session has a temporary one.
  */
object SparksOwn {

  def is(session: SparkSession, name: Seq[String]): Boolean =
    givesValue(session, name) || givesTable(session, name)

  def givesValue(session: SparkSession, name: Seq[String]): Boolean =
    name.length == 1 && functions(session).lookupBuiltinOrTempFunction(name.head).isDefined

  def givesTable(session: SparkSession, name: Seq[String]): Boolean =
    name.length == 1 && functions(session).lookupBuiltinOrTempTableFunction(name.head).isDefined

  private def functions(session: SparkSession) = session.sessionState.catalog
}
