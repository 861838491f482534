// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.config

import scala.util.control.NonFatal

/** Setting with everything that describes it; docs/reference/connector.md is generated from it.
  *
  * @param key
  *   name that users set
  * @param doc
  *   one paragraph for the reference page
  * @param default
  *   text used if the setting is absent; None if the setting has no default
  * @param isCommon
  *   true if most users set it; the reference page lists such settings in its first part
  */
final case class ConfigEntry[T](
    key: String,
    doc: String,
    values: Values[T],
    default: Option[String] = None,
    isCommon: Boolean = false
) {

  /** Return the value of the setting, or of its default. */
  def read(lookup: String => Option[String]): Option[T] =
    lookup(key).orElse(default).map(_.trim).filter(_.nonEmpty).map(parsed)

  /** Return the value of a setting that has a default. */
  def require(lookup: String => Option[String]): T =
    read(lookup).getOrElse(throw new IllegalArgumentException(s"$key must not be empty"))

  /** Return the value only if the setting itself is set. */
  def readSet(lookup: String => Option[String]): Option[T] =
    lookup(key).flatMap(_ => read(lookup))

  private def parsed(text: String): T =
    try values.parse(text)
    catch {
      case NonFatal(e) =>
        throw new IllegalArgumentException(s"""$key = "$text": ${e.getMessage}""", e)
    }
}
