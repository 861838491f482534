// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.config

import java.nio.file.{Files, Path}

import io.updraft.spark.reasons.{FallbackReason, FunctionKind, FunctionKinds}

/** Generator of docs/reference: the settings from [[UpdraftConf]], [[WriteConf]] and [[TraceConf]],
  * and what runs where from [[FunctionKinds]]. A test fails if a page and its source differ.
  */
object GenerateDocs {

  /** Write the pages into the directory given as the only argument. */
  def main(arguments: Array[String]): Unit = arguments match {
    case Array(directory) =>
      pages.foreach { case (name, text) => Files.writeString(Path.of(directory, name), text) }
    case _ => throw new IllegalArgumentException("expected one argument: the directory to write to")
  }

  /** Return the pages by file name. */
  def pages: Map[String, String] =
    Map("connector.md" -> settingsPage, "functions.md" -> functionsPage)

  private def settingsPage: String = {
    val entries = UpdraftConf.entries ++ WriteConf.entries ++ TraceConf.entries
    val (common, others) = entries.partition(_.isCommon)
    (Seq(header, "## Common settings\n") ++ common.map(section) ++ Seq(catalog) ++
      Seq("## Other settings\n") ++ others.map(section) :+ catalogOfPools).mkString("\n")
  }

  private def functionsPage: String = {
    val kinds =
      Seq("| function | PySpark's kind | since Spark | runs on |", "| --- | --- | --- | --- |") ++
        FunctionKinds.all.map(kindRow)
    val reasons =
      Seq("| reason | a function stays on stock execution because |", "| --- | --- |") ++
        FallbackReason.all.map(reasonRow)
    (Seq(functionsHeader) ++ kinds ++ Seq("", "## Reasons", "") ++ reasons :+ "").mkString("\n")
  }

  private def functionsHeader: String =
    s"""|<!-- SPDX-License-Identifier: Apache-2.0 -->
        |<!-- Written by io.updraft.spark.config.GenerateDocs from FunctionKinds and FallbackReason. Do not edit. -->
        |# What runs where
        |
        |Every kind of Python function that PySpark 3.5 to 4.3 has. A function whose kind runs on the pool still stays on stock
        |execution if one of the reasons below applies to its query; `explain` and the log give the reason. Set
        |`${UpdraftConf.unsupported.key}` or `${UpdraftConf.fallback.key}` to `fail` to get an error instead.
        |""".stripMargin

  private def kindRow(kind: FunctionKind): String = {
    val place = kind.fallbackReason.fold("the pool")(reason => s"stock: ${reason.name}")
    s"| ${kind.usage} | `${kind.name}` | ${kind.since} | $place |"
  }

  private def reasonRow(reason: FallbackReason): String = s"| ${reason.name} | ${reason.text} |"

  private def header: String =
    """|<!-- SPDX-License-Identifier: Apache-2.0 -->
       |<!-- Written by io.updraft.spark.config.GenerateDocs from UpdraftConf, WriteConf and TraceConf. Do not edit. -->
       |# Settings of the Spark connector
       |
       |Set them as any Spark conf: with `--conf`, in `spark-defaults.conf`, on `SparkSession.builder`, or, for the
       |queries that follow, with `spark.conf.set`. Durations and sizes are written as Spark writes them: `10s`, `16m`.
       |
       |Settings that begin with `spark.updraft.write.` are options of a single write too, which then wins over the session:
       |`df.write.format("updraft-parquet").option("spark.updraft.write.delivery", "return")`. The driver logs a warning, once in a
       |session, about each setting or option under `spark.updraft.` that does not exist, with the name that was probably meant.
       |""".stripMargin

  private def catalog: String =
    """|### `spark.sql.catalog.updraft`
       |
       |With `io.updraft.spark.FunctionCatalog`, the registered functions of the session's pool can be called from SQL as
       |`updraft.default.NAME`, and from the DataFrame API. The [guide](../guides/registered-functions.md) has examples.
       |
       |Name of a class; default: not set.
       |""".stripMargin

  private def catalogOfPools: String =
    """|### `spark.sql.catalog.updraft.pool.NAME`
       |
       |Endpoint of another pool, whose functions SQL finds in `updraft.NAME`.
       |
       |URI; default: not set.
       |""".stripMargin

  private def section(entry: ConfigEntry[_]): String =
    s"""|### `${entry.key}`
        |
        |${entry.doc}
        |
        |${entry.values.unit.capitalize}; default: ${entry.default.fold("not set")(value =>
        s"`$value`"
      )}.
        |""".stripMargin
}
