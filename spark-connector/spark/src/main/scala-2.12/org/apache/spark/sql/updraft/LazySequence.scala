// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

/** Sequence that evaluates each element once, when a caller first reads the element. On Scala 2.12,
  * creating the sequence already evaluates the first element.
  */
object LazySequence {
  def of[A](elements: (() => A)*): Seq[A] = elements.toStream.map(_())
}
