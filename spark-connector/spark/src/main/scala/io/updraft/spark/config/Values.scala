// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.config

import java.util.Locale

import org.apache.spark.network.util.JavaUtils

/** Readers of setting values; a value that does not fit raises IllegalArgumentException with what
  * was expected.
  */
private[config] object Values {

  def boolean(text: String): Boolean =
    text.toBooleanOption.getOrElse(fail("expected true or false"))

  def choice(allowed: String*)(text: String): String = {
    val value = text.toLowerCase(Locale.ROOT)
    check(allowed.contains(value), s"expected ${allowed.mkString(" or ")}")
    value
  }

  def count(least: Int)(text: String): Int = {
    val value = text.toIntOption.getOrElse(fail("expected a whole number"))
    check(value >= least, s"expected at least $least")
    value
  }

  def bytes(least: Long, most: Long)(text: String): Long = {
    val value = JavaUtils.byteStringAsBytes(text)
    check(value >= least && value <= most, s"expected $least to $most bytes")
    value
  }

  def milliseconds(least: Long)(text: String): Long = {
    val value = JavaUtils.timeStringAsMs(text)
    check(value >= least, s"expected at least $least ms")
    value
  }

  private def check(holds: Boolean, expected: String): Unit = if (!holds) fail(expected)

  private def fail(expected: String): Nothing = throw new IllegalArgumentException(expected)
}
