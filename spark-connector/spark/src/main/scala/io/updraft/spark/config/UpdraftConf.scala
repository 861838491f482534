// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.config

import java.time.Duration

import org.apache.spark.sql.internal.SQLConf

import io.updraft.client.Peer.Setting
import io.updraft.client.{ClientOptions, Peer}

/** Settings of UDFs on a pool. [[UdfSettings]] holds the values for one query. */
object UpdraftConf
    extends ConnectionConf(
      Peer.POOL,
      noun = "pool",
      unit = "task",
      unset =
        "Over a Unix socket, large batches pass through shared memory. At a loopback address they do so if the pool runs as " +
          "the same user and listens on that address or on a Unix socket. `grpc+tcp://` instead of `grpc://` keeps them " +
          "in the connection. If no endpoint is set, Python UDFs stay on stock Spark.",
      queued =
        " Time in the pool's queue does not count: a queued task waits for a worker until `deadline`."
    ) {

  val enabled: ConfigEntry[Boolean] = ConfigEntry(
    prefix + "enabled",
    "Run Python UDFs on the pool. Set it to `false` to run later queries on stock Spark.",
    Values.boolean,
    Some("true")
  )

  val fallback: ConfigEntry[String] = ConfigEntry(
    prefix + "fallback",
    "What happens if the pool cannot run the functions of a query. The driver checks this before the first task: the " +
      "pool may be unreachable, have another version of Python, Spark or the protocol, run registered functions only, " +
      "or refuse the session's certificate, token, identity or signing key; or the driver cannot use a file that these " +
      "settings name. `fail`: the query fails before its first task, with an error that names the setting to fix. " +
      "`local`: the query runs its UDFs in Spark's own Python workers, and the plan and the log give the reason. Set " +
      "it to `local` for jobs that have to run even if the pool is down. The driver then waits 3 seconds for the " +
      "pool's answer, or `connectTimeout` if that is shorter. With `fail` it waits longer for a pool that may still " +
      "start: for `connectTimeout` if its name has an address and nothing listens there, and for `acquireTimeout` if " +
      "it has answered before. If the pool fails after planning, tasks fail with both values. With `fail`, tasks also " +
      "fail if the pool accepts connections but never answers.",
    Values.choice("fail", "local"),
    Some("fail"),
    isCommon = true
  )

  val unsupported: ConfigEntry[String] = ConfigEntry(
    prefix + "unsupported",
    "What to do with a function that the pool cannot run. `local`: it runs in Spark's own Python workers, and the " +
      "plan and the log give the reason. `fail`: planning fails with the reason; set it to learn which functions stay " +
      "on stock execution. Not set: the value of `fallback` if that is set, otherwise `local`. " +
      "[What runs where](functions.md) lists the reasons.",
    Values.choice("fail", "local"),
    isCommon = true
  )

  val replyTimeout: ConfigEntry[Long] = ConfigEntry(
    Peer.POOL.setting(Setting.REPLY_TIMEOUT),
    "Fail a task when the pool has neither answered nor taken a batch for this long. The time that the function " +
      "works on a batch counts. Set it when you know how long a batch takes at most. 0: no limit but `deadline`.",
    Values.milliseconds(least = 0),
    Some(Values.text(defaults.replyTimeout))
  )

  val deadline: ConfigEntry[Long] = ConfigEntry(
    Peer.POOL.setting(Setting.DEADLINE),
    "Time limit for an exchange with the pool, including the wait in the pool's queue. If an exchange takes longer, its " +
      "task fails. Set it to limit how long a job may wait for workers. 0: no limit.",
    Values.milliseconds(least = 0),
    Some(Values.text(defaults.deadline))
  )

  val windowBytes: ConfigEntry[Long] = ConfigEntry(
    prefix + "windowBytes",
    "Maximum bytes of arguments in flight per task. A single batch that is larger travels alone. Lower it where " +
      "executors are short of memory.",
    Values.bytes(least = 1L << 10, most = 1L << 40),
    Some(s"${defaults.windowBytes >> 20}m")
  )

  val batchBytes: ConfigEntry[Long] = ConfigEntry(
    prefix + "batchBytes",
    "Target size of a batch of arguments. Raise it if functions are fast and the network is far. Batches that take a " +
      "function longer than 50 ms become smaller automatically. Batches are whole multiples of `spark.sql.execution.arrow.maxRecordsPerBatch` rows, and the " +
      "function sees that many rows at once, as on stock Spark.",
    Values.bytes(least = 1L << 10, most = 1L << 30),
    Some("1m")
  )

  val maxHelpers: ConfigEntry[Int] = ConfigEntry(
    prefix + "maxHelpers",
    "Maximum number of helpers per task: idle workers that each take a share of the batches while the task waits for a " +
      "deterministic function. Set it to 0 if the number of tasks has to limit how many calls run at the same time, " +
      "for example calls of an external service. [When tasks have helpers](../guides/sizing.md#stages-with-few-tasks).",
    Values.count(most = 1000),
    Some(defaults.maxHelpers.toString)
  )

  val deterministic: ConfigEntry[Boolean] = ConfigEntry(
    prefix + "deterministic",
    "Declare that the session's functions give the same results for the same input and have no side effects that " +
      "matter. Set it so that functions that do not answer row for row (`mapInPandas`, `applyInPandas`, table " +
      "functions, aggregates, windows) start again on another worker after a loss, as long as their task has used no " +
      "result and four times `windowBytes`, at least `64m`, holds their input; otherwise Spark retries the task. Functions that are marked as " +
      "nondeterministic stay so. For scalar functions Spark's own mark decides alone.",
    Values.boolean,
    Some("false")
  )

  val callOncePerValue: ConfigEntry[String] = ConfigEntry(
    prefix + "callOncePerValue",
    "Call a deterministic function that sees one row at a time once for each combination of its arguments' values in a " +
      "task, and repeat the result. `on`: do so for every such function. `auto`: do so until a task finds that few " +
      "values repeat. `off`: call the function for every row. Set it to `auto` or `on` if functions are slow and their arguments repeat; side effects " +
      "of a function then happen once for a value, not for every row. " +
      "[When it pays](../guides/repeated-values.md).",
    Values.choice("off", "on", "auto"),
    Some("off")
  )

  val signingKeyFile: ConfigEntry[String] = ConfigEntry(
    prefix + "signingKeyFile",
    "PEM file with the Ed25519 key with which the driver signs session functions, as `openssl genpkey -algorithm " +
      "ed25519` writes it (PKCS 8). Set it for a pool that refuses unsigned functions. Only the driver reads the file, " +
      "for each query and for each stage, so you can replace the key without a restart: rename a new file to this " +
      "name. Keep the file from the executors: anyone who has the key can run code on every pool that trusts the key.",
    Values.path
  )

  val signatureLifetime: ConfigEntry[Long] = ConfigEntry(
    prefix + "signatureLifetime",
    "Time for which a signature opens exchanges. A stage has to start all its tasks within this time; open exchanges " +
      "go on, and a stage that is submitted again gets a new signature. Lower it so that a stolen signature expires " +
      "sooner.",
    Values.milliseconds(least = 1000),
    Some("7d")
  )

  /** All settings, in the order of the reference page. */
  val entries: Seq[ConfigEntry[_]] =
    Seq(endpoint, enabled, fallback, unsupported) ++ connectionEntries ++
      Seq(replyTimeout, deadline, windowBytes, batchBytes) ++
      Seq(maxHelpers, deterministic, callOncePerValue) ++
      Seq(signingKeyFile, signatureLifetime)

  /** Return the session's settings; None if no endpoint is set or UDFs are disabled. */
  def settings(conf: SQLConf): Option[UdfSettings] = {
    val lookup = (key: String) => Option(conf.getConfString(key, null))
    if (enabled.require(lookup)) applicationSettings(lookup) else None
  }

  /** Return the settings for Spark's own Python workers. [[enabled]] has no effect on them. */
  def applicationSettings(lookup: String => Option[String]): Option[UdfSettings] =
    endpoint.read(lookup).map(readAll(_, lookup))

  /** Return the session's settings for the pool at this address. This method ignores the session's
    * own endpoint.
    */
  def settingsAt(address: String, conf: SQLConf): UdfSettings =
    readAll(address, key => Option(conf.getConfString(key, null)))

  private def readAll(address: String, lookup: String => Option[String]): UdfSettings =
    UdfSettings(
      connection = connection(address, lookup) { draft =>
        draft.replyTimeout = Duration.ofMillis(replyTimeout.require(lookup))
        draft.deadline = Duration.ofMillis(deadline.require(lookup))
        draft.windowBytes = windowBytes.require(lookup)
        draft.maxHelpers = maxHelpers.require(lookup)
      },
      fallback = fallback.require(lookup),
      unsupported = unsupported.read(lookup).orElse(fallback.readSet(lookup)).getOrElse("local"),
      batchBytes = batchBytes.require(lookup),
      deterministic = deterministic.require(lookup),
      callOncePerValue = callOncePerValue.require(lookup),
      signing = signingKeyFile.read(lookup).map(
        SigningSettings(_, signatureLifetime.require(lookup))
      )
    )
}

/** Settings with which the driver signs session functions.
  *
  * @param keyFile
  *   file with the Ed25519 key, on the driver
  * @param lifetimeMilliseconds
  *   time after which a signature can no longer open exchanges
  */
final case class SigningSettings(keyFile: String, lifetimeMilliseconds: Long)

/** Values of [[UpdraftConf]] for one query; sent to the executors.
  *
  * @param signing
  *   signing settings; None if functions are sent unsigned
  */
final case class UdfSettings(
    connection: ConnectionSettings,
    fallback: String,
    unsupported: String,
    batchBytes: Long,
    deterministic: Boolean,
    callOncePerValue: String,
    signing: Option[SigningSettings]
) {

  def endpoint: String = connection.endpoint

  /** Return the client's options. */
  def clientOptions: ClientOptions = connection.options

  /** Return short text, because plans print settings. */
  override def toString: String = s"UdfSettings($endpoint)"
}
