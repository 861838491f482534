// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.config

import org.apache.spark.sql.internal.SQLConf

import io.updraft.client.Peer

/** The settings of UDFs on a pool; [[UdfSettings]] is what they say for one query. */
object UpdraftConf {
  private val Prefix = "spark.updraft.udf."

  private val connection = new ConnectionConf(
    Peer.POOL,
    noun = "pool",
    unit = "task",
    idle = "While it is not set, the extension does nothing."
  )

  val endpoint: ConfigEntry[String] = connection.endpoint
  val token: ConfigEntry[String] = connection.token
  val tokenFile: ConfigEntry[String] = connection.tokenFile
  val connectTimeout: ConfigEntry[Long] = connection.connectTimeout
  val acquireTimeout: ConfigEntry[Long] = connection.acquireTimeout

  val enabled: ConfigEntry[Boolean] = ConfigEntry(
    Prefix + "enabled",
    "Whether Python UDFs run on the pool. `false` gives stock Spark, query by query.",
    "boolean",
    Some("true"),
    Values.boolean
  )

  val fallback: ConfigEntry[String] = ConfigEntry(
    Prefix + "fallback",
    "What a pool that cannot be reached means. `fail`: the query fails with an error that names the endpoint. " +
      "`local`: the driver tries the endpoint while it plans, and a query whose pool does not answer runs its " +
      "UDFs in Spark's own Python workers, with the reason in the plan and in the log.",
    "fail or local",
    Some("fail"),
    Values.choice("fail", "local")
  )

  val unsupported: ConfigEntry[String] = ConfigEntry(
    Prefix + "unsupported",
    "What a Python function means that a pool cannot take. `local`: it runs in Spark's own Python workers, with " +
      "the reason in the plan and in the log. `fail`: planning fails with the reason. Not set: what `fallback` " +
      "says where that is set, else `local`. [What runs where](functions.md) lists the reasons.",
    "fail or local",
    None,
    Values.choice("fail", "local")
  )

  val replyTimeout: ConfigEntry[Long] = ConfigEntry(
    Prefix + "replyTimeout",
    "How long a task waits while the pool neither answers nor takes a batch. The time that a function works on a " +
      "batch counts. 0: as long as `deadline` says.",
    "duration",
    Some("0s"),
    Values.milliseconds(least = 0)
  )

  val deadline: ConfigEntry[Long] = ConfigEntry(
    Prefix + "deadline",
    "How long the exchange of one task may last in all. 0: no limit.",
    "duration",
    Some("0s"),
    Values.milliseconds(least = 0)
  )

  val windowBatches: ConfigEntry[Int] = ConfigEntry(
    Prefix + "windowBatches",
    "Batches that a task may have in flight: 1 sends and waits in turn.",
    "count",
    Some("4"),
    Values.count(least = 1)
  )

  val windowBytes: ConfigEntry[Long] = ConfigEntry(
    Prefix + "windowBytes",
    "Bytes of arguments that a task may have in flight; a single larger batch goes alone.",
    "bytes",
    Some("16m"),
    Values.bytes(least = 1L << 10, most = 1L << 40)
  )

  val batchBytes: ConfigEntry[Long] = ConfigEntry(
    Prefix + "batchBytes",
    "Bytes of arguments that one batch aims at. Batches are whole multiples of " +
      "`spark.sql.execution.arrow.maxRecordsPerBatch` rows, and the function sees that many rows at once, as on " +
      "stock Spark.",
    "bytes",
    Some("1m"),
    Values.bytes(least = 1L << 10, most = 1L << 30)
  )

  val maxMessageBytes: ConfigEntry[Long] = ConfigEntry(
    Prefix + "maxMessageBytes",
    "Bytes that one message may have, in either direction; the pool has a limit of its own.",
    "bytes",
    Some("256m"),
    Values.bytes(least = 1L << 20, most = Int.MaxValue.toLong)
  )

  val maxReplays: ConfigEntry[Int] = ConfigEntry(
    Prefix + "maxReplays",
    "How often in a row, with no batch answered in between, one task may continue on another worker when its " +
      "worker or connection is lost; only for deterministic functions that answer row for row. A batch that " +
      "ends two workers fails the task.",
    "count",
    Some("3"),
    Values.count(least = 0)
  )

  /** Every setting, in the order of the reference page. */
  val entries: Seq[ConfigEntry[_]] =
    Seq(endpoint, enabled, fallback, unsupported) ++ connection.identityEntries ++ Seq(
      connectTimeout,
      acquireTimeout,
      replyTimeout,
      deadline,
      windowBatches,
      windowBytes,
      batchBytes,
      maxMessageBytes,
      maxReplays
    )

  /** What the session says; None while no endpoint is set or UDFs are not enabled. */
  def settings(conf: SQLConf): Option[UdfSettings] = {
    val lookup = (key: String) => Option(conf.getConfString(key, null))
    if (enabled.require(lookup)) endpoint.read(lookup).map(readAll(_, lookup)) else None
  }

  private def readAll(address: String, lookup: String => Option[String]): UdfSettings =
    UdfSettings(
      connection = connection.settings(address, lookup),
      fallback = fallback.require(lookup),
      unsupported = unsupported.read(lookup).orElse(fallback.readSet(lookup)).getOrElse("local"),
      replyTimeoutMilliseconds = replyTimeout.require(lookup),
      deadlineMilliseconds = deadline.require(lookup),
      windowBatches = windowBatches.require(lookup),
      windowBytes = windowBytes.require(lookup),
      batchBytes = batchBytes.require(lookup),
      maxMessageBytes = maxMessageBytes.require(lookup),
      maxReplays = maxReplays.require(lookup)
    )
}
