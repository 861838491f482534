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
    idle = "Without it `updraft-parquet` and `updraft-orc` can only be read."
  )

  val endpoint: ConfigEntry[String] = connection.endpoint
  val connectTimeout: ConfigEntry[Long] = connection.connectTimeout.copy(
    doc = connection.connectTimeout.doc +
      " Before an overwrite, the driver retries a writer that does not answer for as long; then the write fails and " +
      "nothing is deleted."
  )
  val acquireTimeout: ConfigEntry[Long] = connection.acquireTimeout

  val delivery: ConfigEntry[String] = ConfigEntry(
    Prefix + "delivery",
    "Who stores the file. `direct`: the writer, at the path that Spark's commit protocol chose. The path must lie " +
      "below a `--root` of the writer, on storage that writer and executors share. `return`: the executor stores the " +
      "encoded bytes that the writer returns, through Hadoop; any committer works, and the writer needs no credentials.",
    "direct or return",
    Some("direct"),
    Values.choice("direct", "return")
  )

  val asynchronous: ConfigEntry[Boolean] = ConfigEntry(
    Prefix + "asynchronous",
    "Encode and store batches while the task goes on. `false`: the writer encodes and stores each batch, as a row " +
      "group of its own, before it accepts the next.",
    "boolean",
    Some("true"),
    Values.boolean
  )

  val maxInFlightBytes: ConfigEntry[Long] = ConfigEntry(
    Prefix + "maxInFlightBytes",
    "Maximum bytes of one file that the writer holds before it accepts another batch. 0: only its quota decides.",
    "bytes",
    Some("0"),
    Values.bytes(least = 0, most = 1L << 40)
  )

  val holdGpu: ConfigEntry[Boolean] = ConfigEntry(
    Prefix + "holdGpu",
    "Keep a file's place on the writer's GPU between its batches, while the quota has room. Not set: the value of " +
      "`asynchronous`. It has no effect without a GPU encoder.",
    "boolean",
    None,
    Values.boolean
  )

  val unsupported: ConfigEntry[String] = ConfigEntry(
    Prefix + "unsupported",
    "What to do with a write that the writer cannot do as Spark does, because of a type, a codec or an option " +
      "([the guide](../guides/writer.md) lists them). `local`: Spark's own Parquet or ORC writer writes the files, " +
      "and the log gives the reason. `fail`: the write fails with the reason.",
    "fail or local",
    Some("local"),
    Values.choice("fail", "local")
  )

  val replyTimeout: ConfigEntry[Long] = ConfigEntry(
    Prefix + "replyTimeout",
    "Fail a task when the writer has been silent for this long. A live writer sends a keepalive every 30 seconds, " +
      "however slow its storage is. 0: no limit but `deadline`.",
    "duration",
    Some("10min"),
    Values.milliseconds(least = 0)
  )

  val deadline: ConfigEntry[Long] = ConfigEntry(
    Prefix + "deadline",
    "Maximum time for which a file may be open. 0: no limit.",
    "duration",
    Some("0s"),
    Values.milliseconds(least = 0)
  )

  val batchBytes: ConfigEntry[Long] = ConfigEntry(
    Prefix + "batchBytes",
    "Target size of a batch of rows.",
    "bytes",
    Some("4m"),
    Values.bytes(least = 1L << 10, most = 1L << 30)
  )

  val windowBytes: ConfigEntry[Long] = ConfigEntry(
    Prefix + "windowBytes",
    "Maximum bytes of batches that an open file holds in the executor while it has no credit to send them. Beyond " +
      "that the task waits. A single batch that is larger is held alone.",
    "bytes",
    Some("16m"),
    Values.bytes(least = 1L << 10, most = 1L << 40)
  )

  val maxMessageBytes: ConfigEntry[Long] = ConfigEntry(
    Prefix + "maxMessageBytes",
    "Maximum size of one message, in either direction. The writer has its own limit.",
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
