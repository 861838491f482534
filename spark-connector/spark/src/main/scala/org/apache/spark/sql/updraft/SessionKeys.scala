// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.sql.catalyst.expressions.{Attribute, NamedExpression, SessionWindow}

/** The keys of rows that are grouped by a session window: rows whose windows overlap get the
  * session that spans them ([[SpillingRows]]). Made on the driver, serialized to the tasks.
  *
  * @param session
  *   the key that is a session window
  * @param otherKeys
  *   the keys whose rows can share a session
  */
final case class SessionKeys(
    session: NamedExpression,
    otherKeys: Seq[NamedExpression],
    childOutput: Seq[Attribute]
) {

  /** How rows must be sorted: those of a session lie together. */
  def sortKeys: Seq[NamedExpression] = otherKeys :+ session
}

object SessionKeys {

  /** None: no key is a session window. */
  def of(keys: Seq[NamedExpression], childOutput: Seq[Attribute]): Option[SessionKeys] =
    keys.find(_.metadata.contains(SessionWindow.marker)).map { session =>
      SessionKeys(session, keys.filterNot(_.semanticEquals(session)), childOutput)
    }
}
