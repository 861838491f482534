// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

/** Sequence whose elements are evaluated when they are read, each once. */
object LazySequence {
  def of[A](elements: (() => A)*): Seq[A] = elements.to(LazyList).map(_())
}
