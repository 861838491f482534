// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.config

import java.util.{Collections, HashSet, Locale, Set => JavaSet, WeakHashMap}

import org.apache.spark.internal.Logging
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.unsafe.types.UTF8String

/** Warnings about unknown names under `spark.updraft.`, which are most likely misspelled. Each
  * session warns once about each name.
  */
object UnknownNames extends Logging {
  private val Prefix = "spark.updraft."

  private val settings =
    (UpdraftConf.entries ++ WriteConf.entries ++ TraceConf.entries).map(_.key)
  private val writeOptions = WriteConf.entries.map(_.key)

  private val told = Collections.synchronizedMap(new WeakHashMap[SparkSession, JavaSet[String]]())

  /** Warn about unknown settings. */
  def warnOfSettings(session: SparkSession, conf: SQLConf): Unit =
    conf.getAllConfs.keys.flatMap(unknownSetting).foreach(warnOnce(session, _))

  /** Warn about unknown options of a write. */
  def warnOfOptions(session: SparkSession, options: Map[String, String]): Unit =
    options.keys.flatMap(unknownOption).foreach(warnOnce(session, _))

  /** Return the warning for a setting; None if the setting exists or does not belong to the
    * connector.
    */
  def unknownSetting(name: String): Option[String] =
    if (name.startsWith(Prefix) && !settings.contains(name))
      Some(s"$name is not a setting of Updraft and has no effect${meant(name, settings)}")
    else None

  /** Return the warning for an option of a write. Spark ignores the case of an option's name. */
  def unknownOption(name: String): Option[String] =
    if (lowered(name).startsWith(Prefix) && !writeOptions.exists(_.equalsIgnoreCase(name)))
      Some(s"$name is not an option of a write and has no effect${meant(name, writeOptions)}")
    else None

  private def meant(name: String, known: Seq[String]): String =
    NearestName.of(name, known, Prefix).fold("; docs/reference/connector.md lists the settings")(
      nearest => s"; did you mean $nearest?"
    )

  private def lowered(name: String): String = name.toLowerCase(Locale.ROOT)

  private def warnOnce(session: SparkSession, warning: String): Unit =
    if (told.computeIfAbsent(session, _ => new HashSet[String]()).add(warning)) logWarning(warning)
}

/** Suggestion of the name that an unknown name most likely stands for. */
object NearestName {

  /** Largest share of letters in which a name may differ from the intended name. */
  private val AlikeShare = 0.45

  /** Return the most similar known name; None if none is similar enough.
    *
    * @param prefix
    *   common prefix of all names
    */
  def of(name: String, known: Seq[String], prefix: String = ""): Option[String] =
    known.sortBy(distance(name, _)).headOption.filter { nearest =>
      distance(name, nearest) <= AlikeShare * (nearest.length - prefix.length)
    }

  private def distance(one: String, other: String): Int =
    UTF8String.fromString(lowered(one)).levenshteinDistance(UTF8String.fromString(lowered(other)))

  private def lowered(name: String): String = name.toLowerCase(Locale.ROOT)
}
