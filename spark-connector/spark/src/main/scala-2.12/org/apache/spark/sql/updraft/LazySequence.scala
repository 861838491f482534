// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

/** Sequence whose elements are evaluated when they are read, each once. On Scala 2.12, the first
  * element is evaluated when the sequence is created.
  */
object LazySequence {
  def of[A](elements: (() => A)*): Seq[A] = elements.toStream.map(_())
}
