// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import java.util.Locale

import org.apache.spark.sql.SparkSession

/** Names that Spark looks for in no catalog: it has such a function itself, or the session has a
  * temporary one. They have no namespace, or one of those that stand for Spark's own.
  */
object SparksOwn {

  private val schemas = Set("builtin", "session")

  def is(session: SparkSession, name: Seq[String]): Boolean =
    givesValue(session, name) || givesTable(session, name)

  def givesValue(session: SparkSession, name: Seq[String]): Boolean =
    unqualified(name).exists(functions(session).lookupBuiltinOrTempFunction(_).isDefined)

  def givesTable(session: SparkSession, name: Seq[String]): Boolean =
    unqualified(name).exists(functions(session).lookupBuiltinOrTempTableFunction(_).isDefined)

  private def unqualified(name: Seq[String]): Option[String] = name match {
    case Seq(function) => Some(function)
    case Seq(schema, function) if schemas(schema.toLowerCase(Locale.ROOT)) => Some(function)
    case _ => None
  }

  private def functions(session: SparkSession) = session.sessionState.catalog
}
