// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.config

import java.nio.file.{Files, Path}

/** Writes docs/reference/connector.md from [[UpdraftConf]]; a test fails when the page and the
  * settings differ.
  */
object GenerateDocs {

  /** Writes the page to the path that is the only argument. */
  def main(arguments: Array[String]): Unit = arguments match {
    case Array(target) => Files.writeString(Path.of(target), page)
    case _ => throw new IllegalArgumentException("expected one argument: the file to write")
  }

  /** The whole page. */
  def page: String = (header +: UpdraftConf.entries.map(section)).mkString("\n")

  private def header: String =
    """|<!-- SPDX-License-Identifier: Apache-2.0 -->
       |<!-- Written by io.updraft.spark.config.GenerateDocs from UpdraftConf. Do not edit. -->
       |# Settings of the Spark connector
       |
       |Set them as any Spark conf: with `--conf`, in `spark-defaults.conf`, on `SparkSession.builder`, or, for the
       |queries that follow, with `spark.conf.set`. Durations and sizes are written as Spark writes them: `10s`, `16m`.
       |""".stripMargin

  private def section(entry: ConfigEntry[_]): String =
    s"""|## `${entry.key}`
        |
        |${entry.doc}
        |
        |${entry.unit.capitalize}; default: ${entry.default.fold("not set")(value => s"`$value`")}.
        |""".stripMargin
}
