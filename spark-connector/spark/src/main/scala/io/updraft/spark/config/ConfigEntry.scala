// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.config

import scala.util.control.NonFatal

/** One setting: everything about it is declared here, once, and docs/reference/connector.md is
  * written from it.
  *
  * @param key
  *   what users set
  * @param doc
  *   one paragraph for the reference page
  * @param default
  *   the text used where nothing is set; None: the setting may be absent
  */
final case class ConfigEntry[T](
    key: String,
    doc: String,
    values: Values[T],
    default: Option[String] = None
) {

  /** The value of the setting, or of its default. */
  def read(lookup: String => Option[String]): Option[T] =
    lookup(key).orElse(default).map(_.trim).filter(_.nonEmpty).map(parsed)

  /** The value of a setting that has a default. */
  def require(lookup: String => Option[String]): T =
    read(lookup).getOrElse(throw new IllegalArgumentException(s"$key must not be empty"))

  /** The value of the setting where it is set itself. */
  def readSet(lookup: String => Option[String]): Option[T] =
    lookup(key).flatMap(_ => read(lookup))

  private def parsed(text: String): T =
    try values.parse(text)
    catch {
      case NonFatal(e) =>
        throw new IllegalArgumentException(s"""$key = "$text": ${e.getMessage}""", e)
    }
}
