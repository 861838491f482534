// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.config

import org.apache.spark.sql.catalyst.util.CaseInsensitiveMap
import org.apache.spark.sql.internal.SQLConf

import io.updraft.client.Peer

/** Settings of `updraft-parquet` and `updraft-orc`; [[WriteSettings]] holds their values for one
  * write.
  */
object WriteConf
    extends ConnectionConf(
      Peer.WRITER,
      noun = "writer",
      unit = "file",
      unset = "Without it `updraft-parquet` and `updraft-orc` can only be read.",
      unreachable =
        " Before an overwrite, the driver retries a writer that does not answer for as long; then the write fails and " +
          "nothing is deleted."
    ) {

  val delivery: ConfigEntry[String] = ConfigEntry(
    prefix + "delivery",
    "Who stores the file. `direct`: the writer, at the path that Spark's commit protocol chose. The path must lie " +
      "below a `--root` of the writer, on storage that writer and executors share. `return`: the executor stores the " +
      "encoded bytes that the writer returns, through Hadoop; any committer works, and the writer needs no credentials.",
    Values.choice("direct", "return"),
    Some("direct")
  )

  val asynchronous: ConfigEntry[Boolean] = ConfigEntry(
    prefix + "asynchronous",
    "Encode and store batches while the task goes on. `false`: the writer encodes and stores each batch, as a row " +
      "group of its own, before it accepts the next.",
    Values.boolean,
    Some("true")
  )

  val maxInFlightBytes: ConfigEntry[Long] = ConfigEntry(
    prefix + "maxInFlightBytes",
    "Maximum bytes of one file that the writer holds before it accepts another batch. 0: only its quota decides.",
    Values.bytes(least = 0, most = 1L << 40),
    Some("0")
  )

  val holdGpu: ConfigEntry[Boolean] = ConfigEntry(
    prefix + "holdGpu",
    "Keep a file's place on the writer's GPU between its batches, while the quota has room. Not set: the value of " +
      "`asynchronous`. It has no effect without a GPU encoder.",
    Values.boolean
  )

  val unsupported: ConfigEntry[String] = ConfigEntry(
    prefix + "unsupported",
    "What to do with a write that the writer cannot do as Spark does, because of a type, a codec or an option " +
      "([the guide](../guides/writer.md) lists them). `local`: Spark's own Parquet or ORC writer writes the files, " +
      "and the log gives the reason. `fail`: the write fails with the reason.",
    Values.choice("fail", "local"),
    Some("local")
  )

  override val replyTimeout: ConfigEntry[Long] = ConfigEntry(
    prefix + "replyTimeout",
    "Fail a task when the writer has been silent for this long. A live writer sends a keepalive every 30 seconds, " +
      "however slow its storage is. 0: no limit but `deadline`.",
    Values.milliseconds(least = 0),
    Some("10min")
  )

  val batchBytes: ConfigEntry[Long] = ConfigEntry(
    prefix + "batchBytes",
    "Target size of a batch of rows.",
    Values.bytes(least = 1L << 10, most = 1L << 30),
    Some("4m")
  )

  override val windowBytes: ConfigEntry[Long] = ConfigEntry(
    prefix + "windowBytes",
    "Maximum bytes of batches that an open file holds in the executor while it has no credit to send them. Beyond " +
      "that the task waits. A single batch that is larger is held alone.",
    Values.bytes(least = 1L << 10, most = 1L << 40),
    Some("16m")
  )

  /** All settings, in the order of the reference page. */
  val entries: Seq[ConfigEntry[_]] =
    Seq(endpoint, delivery, asynchronous, maxInFlightBytes, holdGpu, unsupported) ++
      (connectionEntries :+ batchBytes)

  /** Return the settings of a write from its options and, for those not given, from the session;
    * raise IllegalArgumentException if no endpoint is set.
    *
    * @param options
    *   options of the write, by the names of settings
    * @param format
    *   data source being written, for errors
    */
  def settings(conf: SQLConf, options: Map[String, String], format: String): WriteSettings = {
    val own = CaseInsensitiveMap(options)
    val lookup = (key: String) => own.get(key).orElse(Option(conf.getConfString(key, null)))
    val address = endpoint.read(lookup).getOrElse(throw new IllegalArgumentException(
      s"$format needs a writer service: set ${endpoint.key} to its address"
    ))
    WriteSettings(
      connection = connection(address, lookup),
      delivery = delivery.require(lookup),
      asynchronous = asynchronous.require(lookup),
      maxInFlightBytes = maxInFlightBytes.require(lookup),
      holdGpu = holdGpu.read(lookup),
      unsupported = unsupported.require(lookup),
      batchBytes = batchBytes.require(lookup)
    )
  }
}
