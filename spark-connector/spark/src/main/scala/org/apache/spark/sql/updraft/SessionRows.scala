// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, NamedExpression, SessionWindow}
import org.apache.spark.sql.internal.SQLConf

/** Gives rows whose windows overlap the session that spans them, by Spark's own code. Made on the
  * driver, serialized to the tasks.
  *
  * @param session
  *   the key that is a session window
  * @param otherKeys
  *   the keys whose rows can share a session
  */
final case class SessionRows(
    session: NamedExpression,
    otherKeys: Seq[NamedExpression],
    childOutput: Seq[Attribute]
) {

  /** How rows must be sorted: those of a session lie together. */
  def sortKeys: Seq[NamedExpression] = otherKeys :+ session

  def of(rows: Iterator[InternalRow]): Iterator[InternalRow] =
    SpillingRows.inSessions(rows, session, otherKeys, childOutput, SQLConf.get)
}

object SessionRows {

  /** None: no key is a session window. */
  def of(keys: Seq[NamedExpression], childOutput: Seq[Attribute]): Option[SessionRows] =
    keys.find(_.metadata.contains(SessionWindow.marker)).map { session =>
      SessionRows(session, keys.filterNot(_.semanticEquals(session)), childOutput)
    }
}
