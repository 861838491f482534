// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.config

import java.util.Locale

import org.apache.spark.unsafe.types.UTF8String

/** Suggestion of the name most likely meant by an unknown one. */
object NearestName {

  /** Largest share of a name's letters that may differ from the intended name. */
  private val AlikeShare = 0.45

  /** Return the most similar known name; None if none is similar enough.
    *
    * @param prefix
    *   common prefix of all names
    */
  def of(name: String, known: Seq[String], prefix: String = ""): Option[String] =
    known.minByOption(distance(name, _)).filter { nearest =>
      distance(name, nearest) <= AlikeShare * (nearest.length - prefix.length)
    }

  private def distance(one: String, other: String): Int =
    UTF8String.fromString(lowered(one)).levenshteinDistance(UTF8String.fromString(lowered(other)))

  private def lowered(name: String): String = name.toLowerCase(Locale.ROOT)
}
