// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.config

import org.apache.spark.sql.internal.SQLConf

import io.updraft.client.Peer

/** Settings of UDFs on a pool; [[UdfSettings]] holds their values for one query. */
object UpdraftConf
    extends ConnectionConf(
      Peer.POOL,
      noun = "pool",
      unit = "task",
      unset = "Without it the extension does nothing.",
      queued =
        " Time in the pool's queue does not count: a task that has its place there waits for a worker until `deadline`."
    ) {

  val enabled: ConfigEntry[Boolean] = ConfigEntry(
    prefix + "enabled",
    "Run Python UDFs on the pool. `false` leaves the queries that follow to stock Spark.",
    Values.boolean,
    Some("true")
  )

  val fallback: ConfigEntry[String] = ConfigEntry(
    prefix + "fallback",
    "What to do when the pool cannot be used: it is unreachable, one side does not trust the other's certificate, it " +
      "refuses the session's token or identity, the driver cannot use a file that these settings name, the pool has " +
      "another version of Python, Spark or the protocol, runs registered functions only, or does not know the key " +
      "that signs the session's functions. `fail`: the query fails before its first task, with an error that names " +
      "the setting to fix. `local`: the driver asks the pool while it plans; the query then runs its UDFs in Spark's " +
      "own Python workers, and the plan and the log give the reason. The driver looks for the pool, and waits for an " +
      "answer, for 3 seconds, or for `connectTimeout` if that is shorter. With `fail` it waits longer for a pool that " +
      "may still start: for `connectTimeout` where the name has an address and nothing listens, and for " +
      "`acquireTimeout` where the pool has answered before. A pool that accepts connections and gives no answer " +
      "counts as unreachable with `local`; with `fail` the tasks wait for it. What happens after planning fails tasks " +
      "in both cases.",
    Values.choice("fail", "local"),
    Some("fail")
  )

  val unsupported: ConfigEntry[String] = ConfigEntry(
    prefix + "unsupported",
    "What to do with a function that the pool cannot run. `local`: it runs in Spark's own Python workers, and the " +
      "plan and the log give the reason. `fail`: planning fails with the reason. Not set: the value of `fallback` " +
      "if that is set, otherwise `local`. [What runs where](functions.md) lists the reasons.",
    Values.choice("fail", "local")
  )

  override val replyTimeout: ConfigEntry[Long] = ConfigEntry(
    prefix + "replyTimeout",
    "Fail a task when the pool has neither answered nor taken a batch for this long. The time that the function " +
      "works on a batch counts. 0: no limit but `deadline`.",
    Values.milliseconds(least = 0),
    Some("0s")
  )

  val windowBatches: ConfigEntry[Int] = ConfigEntry(
    prefix + "windowBatches",
    "Maximum number of batches in flight per task. 1 waits for each reply before sending the next batch.",
    Values.count(least = 1),
    Some("4")
  )

  override val windowBytes: ConfigEntry[Long] = ConfigEntry(
    prefix + "windowBytes",
    "Maximum bytes of arguments in flight per task. A single batch that is larger travels alone.",
    Values.bytes(least = 1L << 10, most = 1L << 40),
    Some("16m")
  )

  val batchBytes: ConfigEntry[Long] = ConfigEntry(
    prefix + "batchBytes",
    "Target size of a batch of arguments. Batches are whole multiples of " +
      "`spark.sql.execution.arrow.maxRecordsPerBatch` rows, and the function sees that many rows at once, as on " +
      "stock Spark.",
    Values.bytes(least = 1L << 10, most = 1L << 30),
    Some("1m")
  )

  val maxReplays: ConfigEntry[Int] = ConfigEntry(
    prefix + "maxReplays",
    "Maximum number of times in a row that a task continues on another worker after its worker or connection was " +
      "lost. An answered batch resets the count. Only deterministic functions that answer row for row can continue; " +
      "others start again if they are declared `deterministic`. A batch that ends two workers fails the task. The SQL " +
      "tab counts all of them at the operator, as *replays on another worker* (`updraftReplays`).",
    Values.count(least = 0),
    Some("3")
  )

  val replayBytes: ConfigEntry[Long] = ConfigEntry(
    Peer.POOL.replayBytesSetting,
    "Maximum bytes of batches that a task keeps, in addition to its window, to send them to another worker: those that " +
      "the function has taken and not answered. A single batch that is larger is kept. If a function takes more before " +
      "it answers, losing its worker fails the task with an error that names this setting, and Spark retries the task. " +
      "Not set: four times `windowBytes`, at least `64m`.",
    Values.bytes(least = 1L << 10, most = 1L << 40)
  )

  val deterministic: ConfigEntry[Boolean] = ConfigEntry(
    prefix + "deterministic",
    "Declare that the session's functions give the same results for the same input and have no side effects that " +
      "matter. Functions that do not answer row for row (`mapInPandas`, `applyInPandas`, table functions, aggregates, " +
      "windows) then start again on another worker after a loss, as long as their task has used no result and " +
      "`replayBytes` holds their input. Otherwise Spark retries the task. Functions that are marked as " +
      "nondeterministic stay so; for scalar functions Spark's own mark decides alone.",
    Values.boolean,
    Some("false")
  )

  val signingKeyFile: ConfigEntry[String] = ConfigEntry(
    prefix + "signingKeyFile",
    "PEM file with the Ed25519 key by which the driver signs session functions, as `openssl genpkey -algorithm " +
      "ed25519` writes it (PKCS 8). Only the driver reads it, for each query and for each stage, so you can replace " +
      "the key without a restart: rename a new file to it. Keep it from the executors: whoever has it runs code on " +
      "every pool that trusts it. Not set: functions travel without a signature, and a pool that asks for signatures refuses them.",
    Values.path
  )

  val signatureLifetime: ConfigEntry[Long] = ConfigEntry(
    prefix + "signatureLifetime",
    "Time for which a signature opens exchanges. Every stage of a query that is submitted, and submitted again, gets a " +
      "new one, and an exchange that is open goes on; so a stage has to start all its tasks within this time.",
    Values.milliseconds(least = 1000),
    Some("7d")
  )

  /** All settings, in the order of the reference page. */
  val entries: Seq[ConfigEntry[_]] =
    Seq(endpoint, enabled, fallback, unsupported) ++ connectionEntries ++
      Seq(windowBatches, batchBytes, maxReplays, replayBytes, deterministic) ++
      Seq(signingKeyFile, signatureLifetime)

  /** Return the session's settings; None if no endpoint is set or UDFs are disabled. */
  def settings(conf: SQLConf): Option[UdfSettings] = {
    val lookup = (key: String) => Option(conf.getConfString(key, null))
    if (enabled.require(lookup)) endpoint.read(lookup).map(readAll(_, lookup)) else None
  }

  /** Return the session's settings for the pool at this address, whatever the session's endpoint
    * is.
    */
  def settingsAt(address: String, conf: SQLConf): UdfSettings =
    readAll(address, key => Option(conf.getConfString(key, null)))

  private def readAll(address: String, lookup: String => Option[String]): UdfSettings =
    UdfSettings(
      connection = connection(address, lookup),
      fallback = fallback.require(lookup),
      unsupported = unsupported.read(lookup).orElse(fallback.readSet(lookup)).getOrElse("local"),
      windowBatches = windowBatches.require(lookup),
      batchBytes = batchBytes.require(lookup),
      maxReplays = maxReplays.require(lookup),
      replayBytes = replayBytes.read(lookup),
      deterministic = deterministic.require(lookup),
      signing = signingKeyFile.read(lookup).map(
        SigningSettings(_, signatureLifetime.require(lookup))
      )
    )
}
