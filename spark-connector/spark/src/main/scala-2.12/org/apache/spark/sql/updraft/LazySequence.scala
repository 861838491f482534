// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

/** Sequence that evaluates an element only when it is first read. On Scala 2.12 it evaluates the
  * first element when it is made.
  */
object LazySequence {
  def of[A](elements: (() => A)*): Seq[A] = elements.toStream.map(_())
}
