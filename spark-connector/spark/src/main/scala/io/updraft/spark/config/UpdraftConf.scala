// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.config

import org.apache.spark.sql.internal.SQLConf

import io.updraft.client.{Endpoint, SettingNames}

/** The settings of the connector; [[UdfSettings]] is what they say for one query. */
object UpdraftConf {
  private val Prefix = "spark.updraft.udf."

  val endpoint: ConfigEntry[String] = ConfigEntry(
    SettingNames.ENDPOINT,
    "Where the pool listens: `grpc://host:port`, `grpc+tls://host:port` or `grpc+unix:///path`. " +
      "While it is not set, the extension does nothing.",
    "URI",
    None,
    text => Endpoint.parse(text).toString
  )

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

  val token: ConfigEntry[String] = ConfigEntry(
    Prefix + "token",
    "Bearer token for the pool. Spark redacts it in its UI and logs; prefer `tokenFile`.",
    "text",
    None,
    identity
  )

  val tokenFile: ConfigEntry[String] = ConfigEntry(
    SettingNames.TOKEN_FILE,
    "File on the driver and on each executor that holds the bearer token; read for each task, so that a token " +
      "can be replaced without a restart.",
    "path",
    None,
    identity
  )

  val tlsCaFile: ConfigEntry[String] = ConfigEntry(
    SettingNames.TLS_CA_FILE,
    "PEM file with the authorities that sign the pool's certificate. Not set: those of the JVM.",
    "path",
    None,
    identity
  )

  val tlsCertificateFile: ConfigEntry[String] = ConfigEntry(
    SettingNames.TLS_CERTIFICATE_FILE,
    "PEM file with the client's certificate chain, for mutual TLS; needs `tls.keyFile` too.",
    "path",
    None,
    identity
  )

  val tlsKeyFile: ConfigEntry[String] = ConfigEntry(
    SettingNames.TLS_KEY_FILE,
    "PEM file with the private key of `tls.certificateFile`, PKCS 8.",
    "path",
    None,
    identity
  )

  val tenant: ConfigEntry[String] = ConfigEntry(
    Prefix + "tenant",
    "Whose share of the pool's queue a task takes. Not set: that of the application.",
    "text",
    None,
    identity
  )

  val connectTimeout: ConfigEntry[Long] = ConfigEntry(
    Prefix + "connectTimeout",
    "How long a connection to the pool may take to be made.",
    "duration",
    Some("10s"),
    Values.milliseconds(least = 1)
  )

  val acquireTimeout: ConfigEntry[Long] = ConfigEntry(
    Prefix + "acquireTimeout",
    "How long a task asks again when the pool is full or not ready. Nothing was done by then, so nothing is lost.",
    "duration",
    Some("10min"),
    Values.milliseconds(least = 0)
  )

  val replyTimeout: ConfigEntry[Long] = ConfigEntry(
    Prefix + "replyTimeout",
    "How long a task waits while the pool neither answers nor takes a batch. 0: as long as `deadline` says.",
    "duration",
    Some("0s"),
    Values.milliseconds(least = 0)
  )

  val deadline: ConfigEntry[Long] = ConfigEntry(
    Prefix + "deadline",
    "How long the exchange of one task may last in all. 0: the pool's own limit.",
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
  val entries: Seq[ConfigEntry[_]] = Seq(
    endpoint,
    enabled,
    fallback,
    unsupported,
    token,
    tokenFile,
    tlsCaFile,
    tlsCertificateFile,
    tlsKeyFile,
    tenant,
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
    if (required(enabled, lookup)) endpoint.read(lookup).map(readAll(_, lookup)) else None
  }

  private def readAll(address: String, lookup: String => Option[String]): UdfSettings =
    UdfSettings(
      endpoint = address,
      fallback = required(fallback, lookup),
      unsupported = unsupported.read(lookup).orElse(fallback.readSet(lookup)).getOrElse("local"),
      token = token.read(lookup),
      tokenFile = tokenFile.read(lookup),
      tlsCaFile = tlsCaFile.read(lookup),
      tlsCertificateFile = tlsCertificateFile.read(lookup),
      tlsKeyFile = tlsKeyFile.read(lookup),
      tenant = tenant.read(lookup),
      connectTimeoutMilliseconds = required(connectTimeout, lookup),
      acquireTimeoutMilliseconds = required(acquireTimeout, lookup),
      replyTimeoutMilliseconds = required(replyTimeout, lookup),
      deadlineMilliseconds = required(deadline, lookup),
      windowBatches = required(windowBatches, lookup),
      windowBytes = required(windowBytes, lookup),
      batchBytes = required(batchBytes, lookup),
      maxMessageBytes = required(maxMessageBytes, lookup),
      maxReplays = required(maxReplays, lookup)
    )

  private def required[T](entry: ConfigEntry[T], lookup: String => Option[String]): T =
    entry
      .read(lookup)
      .getOrElse(throw new IllegalArgumentException(s"${entry.key} must not be empty"))
}
