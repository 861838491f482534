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
    idle = "Without it the extension does nothing."
  )

  val endpoint: ConfigEntry[String] = connection.endpoint
  val token: ConfigEntry[String] = connection.token
  val tokenFile: ConfigEntry[String] = connection.tokenFile
  val connectTimeout: ConfigEntry[Long] = connection.connectTimeout
  val acquireTimeout: ConfigEntry[Long] = connection.acquireTimeout

  val enabled: ConfigEntry[Boolean] = ConfigEntry(
    Prefix + "enabled",
    "Run Python UDFs on the pool. `false` leaves the queries that follow to stock Spark.",
    "boolean",
    Some("true"),
    Values.boolean
  )

  val fallback: ConfigEntry[String] = ConfigEntry(
    Prefix + "fallback",
    "What to do when the pool is unreachable. `fail`: the query fails with an error that names the endpoint. " +
      "`local`: the driver checks the endpoint while it plans; if the pool does not answer, the query runs its " +
      "UDFs in Spark's own Python workers, and the plan and the log give the reason.",
    "fail or local",
    Some("fail"),
    Values.choice("fail", "local")
  )

  val unsupported: ConfigEntry[String] = ConfigEntry(
    Prefix + "unsupported",
    "What to do with a function that the pool cannot run. `local`: it runs in Spark's own Python workers, and the " +
      "plan and the log give the reason. `fail`: planning fails with the reason. Not set: the value of `fallback` " +
      "if that is set, otherwise `local`. [What runs where](functions.md) lists the reasons.",
    "fail or local",
    None,
    Values.choice("fail", "local")
  )

  val replyTimeout: ConfigEntry[Long] = ConfigEntry(
    Prefix + "replyTimeout",
    "Fail a task when the pool has neither answered nor taken a batch for this long. The time that the function " +
      "works on a batch counts. 0: no limit but `deadline`.",
    "duration",
    Some("0s"),
    Values.milliseconds(least = 0)
  )

  val deadline: ConfigEntry[Long] = ConfigEntry(
    Prefix + "deadline",
    "Maximum duration of one task's exchange. 0: no limit.",
    "duration",
    Some("0s"),
    Values.milliseconds(least = 0)
  )

  val windowBatches: ConfigEntry[Int] = ConfigEntry(
    Prefix + "windowBatches",
    "Maximum number of batches in flight per task. 1 waits for each reply before sending the next batch.",
    "count",
    Some("4"),
    Values.count(least = 1)
  )

  val windowBytes: ConfigEntry[Long] = ConfigEntry(
    Prefix + "windowBytes",
    "Maximum bytes of arguments in flight per task. A single batch that is larger travels alone.",
    "bytes",
    Some("16m"),
    Values.bytes(least = 1L << 10, most = 1L << 40)
  )

  val batchBytes: ConfigEntry[Long] = ConfigEntry(
    Prefix + "batchBytes",
    "Target size of a batch of arguments. Batches are whole multiples of " +
      "`spark.sql.execution.arrow.maxRecordsPerBatch` rows, and the function sees that many rows at once, as on " +
      "stock Spark.",
    "bytes",
    Some("1m"),
    Values.bytes(least = 1L << 10, most = 1L << 30)
  )

  val maxMessageBytes: ConfigEntry[Long] = ConfigEntry(
    Prefix + "maxMessageBytes",
    "Maximum size of one message, in either direction. The pool has its own limit.",
    "bytes",
    Some("256m"),
    Values.bytes(least = 1L << 20, most = Int.MaxValue.toLong)
  )

  val maxReplays: ConfigEntry[Int] = ConfigEntry(
    Prefix + "maxReplays",
    "Maximum number of times in a row that a task continues on another worker after its worker or connection was " +
      "lost. An answered batch resets the count. Only deterministic functions that answer row for row can continue. " +
      "A batch that ends two workers fails the task.",
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
