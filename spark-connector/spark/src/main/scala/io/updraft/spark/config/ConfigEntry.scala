// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.config

import java.time.Duration
import java.util.Locale

import scala.util.Try
import scala.util.control.NonFatal

import org.apache.spark.network.util.JavaUtils

/** Setting with its name, description, kind of values and default. docs/reference/connector.md is
  * generated from these entries.
  *
  * @param key
  *   name that users set
  * @param doc
  *   one paragraph for the reference page
  * @param default
  *   text used if the setting is absent; None if the setting has no default
  * @param isCommon
  *   true if most users set it; the first part of the reference page lists these settings
  */
final case class ConfigEntry[T](
    key: String,
    doc: String,
    values: Values[T],
    default: Option[String] = None,
    isCommon: Boolean = false
) {

  /** Return the value of the setting, or the default. */
  def read(lookup: String => Option[String]): Option[T] =
    lookup(key).orElse(default).map(_.trim).filter(_.nonEmpty).map(parsed)

  /** Return the value of a setting that has a default. */
  def require(lookup: String => Option[String]): T =
    read(lookup).getOrElse(throw new IllegalArgumentException(s"$key must not be empty"))

  /** Return the value; None if the setting is absent, even if it has a default. */
  def readSet(lookup: String => Option[String]): Option[T] =
    lookup(key).flatMap(_ => read(lookup))

  private def parsed(text: String): T =
    try values.parse(text)
    catch {
      case NonFatal(e) =>
        throw new IllegalArgumentException(s"""$key = "$text": ${e.getMessage}""", e)
    }
}

/** Kind of values of a setting.
  *
  * @param unit
  *   notation of the values
  * @param parse
  *   function that parses a text. If the text is invalid, the function raises an
  *   IllegalArgumentException that says what was expected
  */
final case class Values[T](unit: String, parse: String => T)

private[config] object Values {
  val text: Values[String] = Values("text", identity)

  val path: Values[String] = Values("path", identity)

  val boolean: Values[Boolean] =
    Values("boolean", text => Try(text.toBoolean).getOrElse(fail("expected true or false")))

  def choice(allowed: String*): Values[String] = {
    val names = allowed.mkString(" or ")
    Values(names, checked(_.toLowerCase(Locale.ROOT))(allowed.contains(_), names))
  }

  /** Return values that are `none`, or some of the allowed names, separated by commas. */
  def choices(allowed: String*): Values[Set[String]] = {
    val names = s"none, or some of ${allowed.mkString(", ")}"
    Values(
      names,
      checked(_.toLowerCase(Locale.ROOT).split(',').map(_.trim).toSet)(
        chosen => chosen == Set("none") || chosen.subsetOf(allowed.toSet),
        names
      )
    )
  }

  def bytes(least: Long, most: Long): Values[Long] = Values(
    "bytes",
    checked(JavaUtils.byteStringAsBytes(_))(
      value => value >= least && value <= most,
      s"$least to $most bytes"
    )
  )

  def count(most: Int): Values[Int] = Values(
    "Number",
    checked(_.toInt)(number => number >= 0 && number <= most, s"expected 0 to $most")
  )

  def milliseconds(least: Long): Values[Long] =
    Values("duration", checked(JavaUtils.timeStringAsMs(_))(_ >= least, s"at least $least ms"))

  /** Return a default as users write it. */
  def text(duration: Duration): String =
    if (duration.toMinutes > 0) s"${duration.toMinutes}min" else s"${duration.toSeconds}s"

  private def checked[T](read: String => T)(holds: T => Boolean, expected: String): String => T =
    text => {
      val value = read(text)
      if (!holds(value)) fail(s"expected $expected")
      value
    }

  private def fail(expected: String): Nothing = throw new IllegalArgumentException(expected)
}
