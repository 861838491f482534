// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.config

import org.apache.spark.sql.internal.SQLConf

import io.updraft.client.Peer

/** The settings of `updraft-parquet` and `updraft-orc`; [[WriteSettings]] is what they say for one
  * write.
  */
object WriteConf {
  private val Prefix = "spark.updraft.write."

  private val connection = new ConnectionConf(
    Peer.WRITER,
    noun = "writer",
    unit = "file",
    idle = "Without it `updraft-parquet` and `updraft-orc` can be read, but not written."
  )

  val endpoint: ConfigEntry[String] = connection.endpoint
  val connectTimeout: ConfigEntry[Long] = connection.connectTimeout.copy(
    doc = connection.connectTimeout.doc +
      " Before an overwrite the driver asks a writer that does not answer again for as long; then the write fails, " +
      "and nothing is deleted."
  )
  val acquireTimeout: ConfigEntry[Long] = connection.acquireTimeout

  val delivery: ConfigEntry[String] = ConfigEntry(
    Prefix + "delivery",
    "Who stores the file. `direct`: the writer, at the path that Spark's commit protocol chose; the path must lie " +
      "below a `--root` of the writer, on storage that both reach. `return`: the encoded bytes come back and the " +
      "executor stores them through Hadoop, with any committer and no credentials in the writer.",
    "direct or return",
    Some("direct"),
    Values.choice("direct", "return")
  )

  val asynchronous: ConfigEntry[Boolean] = ConfigEntry(
    Prefix + "asynchronous",
    "Whether a task goes on while its batches are encoded and stored. `false`: each batch is encoded and stored " +
      "before the next is taken, as a row group of its own.",
    "boolean",
    Some("true"),
    Values.boolean
  )

  val maxInFlightBytes: ConfigEntry[Long] = ConfigEntry(
    Prefix + "maxInFlightBytes",
    "Bytes of one file that the writer may hold before it takes another batch. 0: its quota alone decides.",
    "bytes",
    Some("0"),
    Values.bytes(least = 0, most = 1L << 40)
  )

  val holdGpu: ConfigEntry[Boolean] = ConfigEntry(
    Prefix + "holdGpu",
    "Whether a file keeps its place on the writer's GPU between its batches while the quota has room. Not set: when " +
      "`asynchronous`. Without a GPU encoder it has no effect.",
    "boolean",
    None,
    Values.boolean
  )

  val unsupported: ConfigEntry[String] = ConfigEntry(
    Prefix + "unsupported",
    "What a write means that the writer cannot do as Spark does it (a type, a codec, an option; " +
      "[the guide](../guides/writer.md) lists them). `local`: Spark's own Parquet or ORC writer makes its files, with the " +
      "reason in the log. `fail`: the write fails with the reason.",
    "fail or local",
    Some("local"),
    Values.choice("fail", "local")
  )

  val replyTimeout: ConfigEntry[Long] = ConfigEntry(
    Prefix + "replyTimeout",
    "How long a task waits for a silent writer. A writer that is alive sends a keepalive every 30 seconds, however " +
      "slow its storage is. 0: as long as `deadline` says.",
    "duration",
    Some("10min"),
    Values.milliseconds(least = 0)
  )

  val deadline: ConfigEntry[Long] = ConfigEntry(
    Prefix + "deadline",
    "How long one file may be open in all. 0: no limit.",
    "duration",
    Some("0s"),
    Values.milliseconds(least = 0)
  )

  val batchBytes: ConfigEntry[Long] = ConfigEntry(
    Prefix + "batchBytes",
    "Bytes of rows that one batch aims at.",
    "bytes",
    Some("4m"),
    Values.bytes(least = 1L << 10, most = 1L << 30)
  )

  val windowBytes: ConfigEntry[Long] = ConfigEntry(
    Prefix + "windowBytes",
    "Bytes of batches that an open file may hold in the executor while the writer gives no leave to send them; then " +
      "the task waits. A single larger batch is held alone.",
    "bytes",
    Some("16m"),
    Values.bytes(least = 1L << 10, most = 1L << 40)
  )

  val maxMessageBytes: ConfigEntry[Long] = ConfigEntry(
    Prefix + "maxMessageBytes",
    "Bytes that one message may have, in either direction; the writer has a limit of its own.",
    "bytes",
    Some("256m"),
    Values.bytes(least = 1L << 20, most = Int.MaxValue.toLong)
  )

  /** Every setting, in the order of the reference page. */
  val entries: Seq[ConfigEntry[_]] =
    Seq(endpoint, delivery, asynchronous, maxInFlightBytes, holdGpu, unsupported) ++
      connection.identityEntries ++ Seq(
        connectTimeout,
        acquireTimeout,
        replyTimeout,
        deadline,
        batchBytes,
        windowBytes,
        maxMessageBytes
      )

  /** What the session says; raises IllegalArgumentException while no endpoint is set.
    *
    * @param format
    *   the data source that is written, for errors
    */
  def settings(conf: SQLConf, format: String): WriteSettings = {
    val lookup = (key: String) => Option(conf.getConfString(key, null))
    val address = endpoint.read(lookup).getOrElse(throw new IllegalArgumentException(
      s"$format is written by a writer service: set ${endpoint.key} to where it listens"
    ))
    WriteSettings(
      connection = connection.settings(address, lookup),
      delivery = delivery.require(lookup),
      asynchronous = asynchronous.require(lookup),
      maxInFlightBytes = maxInFlightBytes.require(lookup),
      holdGpu = holdGpu.read(lookup),
      unsupported = unsupported.require(lookup),
      replyTimeoutMilliseconds = replyTimeout.require(lookup),
      deadlineMilliseconds = deadline.require(lookup),
      batchBytes = batchBytes.require(lookup),
      windowBytes = windowBytes.require(lookup),
      maxMessageBytes = maxMessageBytes.require(lookup)
    )
  }
}
