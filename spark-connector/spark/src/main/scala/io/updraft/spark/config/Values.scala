// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.config

import java.util.Locale

import org.apache.spark.network.util.JavaUtils

/** Kind of values of a setting.
  *
  * @param unit
  *   notation of the values
  * @param parse
  *   function that reads a value; raises IllegalArgumentException that names what was expected
  */
final case class Values[T](unit: String, parse: String => T)

private[config] object Values {
  val text: Values[String] = Values("text", identity)

  val path: Values[String] = Values("path", identity)

  val boolean: Values[Boolean] =
    Values("boolean", _.toBooleanOption.getOrElse(fail("expected true or false")))

  def choice(allowed: String*): Values[String] = {
    val names = allowed.mkString(" or ")
    Values(names, checked(_.toLowerCase(Locale.ROOT))(allowed.contains(_), names))
  }

  def count(least: Int): Values[Int] =
    Values("count", checked(wholeNumber)(_ >= least, s"at least $least"))

  def bytes(least: Long, most: Long): Values[Long] = Values(
    "bytes",
    checked(JavaUtils.byteStringAsBytes(_))(
      value => value >= least && value <= most,
      s"$least to $most bytes"
    )
  )

  def milliseconds(least: Long): Values[Long] =
    Values("duration", checked(JavaUtils.timeStringAsMs(_))(_ >= least, s"at least $least ms"))

  private def wholeNumber(text: String): Int =
    text.toIntOption.getOrElse(fail("expected a whole number"))

  private def checked[T](read: String => T)(holds: T => Boolean, expected: String): String => T =
    text => {
      val value = read(text)
      if (!holds(value)) fail(s"expected $expected")
      value
    }

  private def fail(expected: String): Nothing = throw new IllegalArgumentException(expected)
}
