// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.sql.catalyst.expressions.{Attribute, NamedExpression, SessionWindow}

/** Keys of rows grouped by a session window. Rows whose windows overlap share one session that
  * spans these windows ([[SpillingRows]]). Made on the driver, serialized to the tasks.
  *
  * @param session
  *   key that is a session window
  * @param otherKeys
  *   other keys; rows share a session only if their other keys are equal
  */
final case class SessionKeys(
    session: NamedExpression,
    otherKeys: Seq[NamedExpression],
    childOutput: Seq[Attribute]
) {

  /** Return the required sort keys. Sorting by them makes the rows of a session contiguous. */
  def sortKeys: Seq[NamedExpression] = otherKeys :+ session
}

object SessionKeys {

  /** Return the keys; None if no key is a session window. */
  def of(keys: Seq[NamedExpression], childOutput: Seq[Attribute]): Option[SessionKeys] =
    keys.find(_.metadata.contains(SessionWindow.marker)).map { session =>
      SessionKeys(session, keys.filterNot(_.semanticEquals(session)), childOutput)
    }
}
