// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.config

import java.time.Duration
import java.util.Locale

import scala.util.Try

import org.apache.spark.sql.catalyst.util.CaseInsensitiveMap
import org.apache.spark.sql.internal.SQLConf

import io.updraft.client.{ClientOptions, Peer}
import io.updraft.proto.v1.{Delivery, Encodings, Pace, ParquetOptions, WriteCommand}

/** Settings of `updraft-parquet` and `updraft-orc`. [[WriteSettings]] holds the values for one
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

  /** Longest silence of a writer. A writer sends a keepalive every 30 seconds, however slow its
    * storage is. So a far longer silence means that the writer's machine is gone.
    */
  private val ReplyTimeout = Duration.ofMinutes(10)

  /** Number of batches that an open file holds in the executor while the file has no credit to send
    * them. With this number, the task can build the next batches while the writer receives the
    * first.
    */
  private val WindowBatches = 4

  val delivery: ConfigEntry[String] = ConfigEntry(
    prefix + "delivery",
    "Process that stores the file. `direct`: the writer, at the path that Spark's commit protocol chose. The path must lie " +
      "below a `--root` of the writer, on storage that writer and executors share. `return`: the executor stores the " +
      "encoded bytes that the writer returns, through Hadoop. Set it to `return` if the writer cannot reach the storage " +
      "or should have no credentials; any committer works then.",
    Values.choice("direct", "return"),
    Some("direct"),
    isCommon = true
  )

  val tables: ConfigEntry[Set[String]] = ConfigEntry(
    prefix + "tables",
    "Table formats whose data files go through the writer: every command that writes such a table sends the data files to " +
      "the writer; statistics, delete files, checkpoints and the commit stay the format's own (`delta`: [the " +
      "guide](../guides/writer.md#delta-tables); `iceberg`: [the guide](../guides/writer.md#iceberg-tables)). `none`: " +
      "only `updraft-parquet` and `updraft-orc` use the writer.",
    Values.choices("delta", "iceberg"),
    Some("none"),
    isCommon = true
  )

  val smallWriteBytes: ConfigEntry[Long] = ConfigEntry(
    prefix + "smallWriteBytes",
    "Size below which the table format's own writer writes a table (`tables`), because a small write does not become " +
      "faster with the writer. It is compared with Spark's estimate of the rows' size. A query without an estimate uses " +
      "the writer. Set it to 0, so that every write uses the writer, if executors must not store files of the table.",
    Values.bytes(least = 0, most = 1L << 40),
    Some("1m")
  )

  val fallback: ConfigEntry[String] = ConfigEntry(
    prefix + "fallback",
    "What happens if the writer refuses a write. `fail`: the write fails; if the writer is only full, the write waits. " +
      "`local`: the driver asks the writer before each write. If the answer is no, Spark's own writer writes the " +
      "files, and the log gives the reason. Set it to `local` for jobs that have to run even if the writer is down. The " +
      "answer is no if the writer refuses the token, the path or this version of the protocol. It is also no if, when " +
      "`connectTimeout` has passed, the writer still does not answer, is draining or has too many open files. If the " +
      "writer fails later, the task fails in both cases.",
    Values.choice("fail", "local"),
    Some("fail")
  )

  val asynchronous: ConfigEntry[Boolean] = ConfigEntry(
    prefix + "asynchronous",
    "Encode and store batches while the task goes on. Set it to `false` to compare: the writer then encodes and stores " +
      "each batch, as a row group of its own, before it accepts the next.",
    Values.boolean,
    Some("true")
  )

  val encodings: ConfigEntry[String] = ConfigEntry(
    prefix + "encodings",
    "Encodings of Parquet columns. `compatible`: plain values and dictionaries, which every reader supports. `compact`: also " +
      "DELTA_BINARY_PACKED and DELTA_BYTE_ARRAY where they save enough, which Spark reads and some other readers do not. " +
      "Set it to `compact` for smaller files that are encoded faster, if all readers of the table support these encodings. " +
      "It has no effect on a GPU, whose library has only the compatible ones.",
    Values.choice("compatible", "compact"),
    Some("compatible")
  )

  val unsupported: ConfigEntry[String] = ConfigEntry(
    prefix + "unsupported",
    "What to do with a write that the writer cannot do as Spark does, because of a type, a codec or an option " +
      "([the guide](../guides/writer.md) lists them). `local`: Spark's own Parquet or ORC writer writes the files, " +
      "and the log gives the reason. `fail`: the write fails with the reason; set it to learn which writes do not use " +
      "the writer.",
    Values.choice("fail", "local"),
    Some("local")
  )

  val batchBytes: ConfigEntry[Long] = ConfigEntry(
    prefix + "batchBytes",
    s"Target size of a batch of rows. An open file holds up to $WindowBatches batches in the executor while the writer " +
      "has no room for them. Lower it where a task has many files open at once and executors are short of memory.",
    Values.bytes(least = 1L << 10, most = 1L << 30),
    Some("4m")
  )

  /** All settings, in the order of the reference page. */
  val entries: Seq[ConfigEntry[_]] =
    Seq(
      endpoint,
      tables,
      smallWriteBytes,
      delivery,
      fallback,
      asynchronous,
      encodings,
      unsupported
    ) ++
      (connectionEntries :+ batchBytes)

  /** Return a function that finds settings in a write's options, and otherwise in the session. */
  def lookup(conf: SQLConf, options: Map[String, String]): String => Option[String] = {
    val own = CaseInsensitiveMap(options)
    key => own.get(key).orElse(Option(conf.getConfString(key, null)))
  }

  /** Return whether the data files of tables of this format go through the writer. */
  def writesTables(conf: SQLConf, format: String): Boolean =
    tables.require(key => Option(conf.getConfString(key, null))).contains(format)

  /** Return whether the data files of tables of this format may go through the writer. Return true
    * for an invalid value, because an invalid value must fail only the writes that use it, not
    * other queries.
    */
  def mayWriteTables(conf: SQLConf, format: String): Boolean =
    Try(writesTables(conf, format)).getOrElse(true)

  /** Return the settings of a write. The write's options take precedence over the session's
    * settings. Raise IllegalArgumentException if no endpoint is set.
    *
    * @param options
    *   options of the write, by the names of settings
    * @param format
    *   data source being written, for errors
    */
  def settings(conf: SQLConf, options: Map[String, String], format: String): WriteSettings = {
    val found = lookup(conf, options)
    val address = endpoint.read(found).getOrElse(throw new IllegalArgumentException(
      s"$format needs a writer service: set ${endpoint.key} to its address"
    ))
    WriteSettings(
      connection = connection(address, found) { draft =>
        draft.replyTimeout = ReplyTimeout
        // A file stays open while its task computes rows, so its exchange has no deadline.
        draft.windowBytes = WindowBatches * batchBytes.require(found)
      },
      delivery = delivery.require(found),
      asynchronous = asynchronous.require(found),
      encodings = encodings.require(found),
      unsupported = unsupported.require(found),
      fallback = fallback.require(found),
      batchBytes = batchBytes.require(found)
    )
  }
}

/** Values of [[WriteConf]] for one write; sent to the executors. */
final case class WriteSettings(
    connection: ConnectionSettings,
    delivery: String,
    asynchronous: Boolean,
    encodings: String,
    unsupported: String,
    fallback: String,
    batchBytes: Long
) {

  def endpoint: String = connection.endpoint

  /** Return whether the writer returns the encoded bytes to the executor. */
  def returns: Boolean = delivery == "return"

  /** Return the client's options. */
  def clientOptions: ClientOptions = connection.options

  /** Return the part of a file's command that the settings determine. The part contains Parquet's
    * options. For another format, the caller replaces these options.
    */
  def command(): WriteCommand.Builder =
    WriteCommand
      .newBuilder()
      .setDelivery(if (returns) Delivery.DELIVERY_RETURN else Delivery.DELIVERY_DIRECT)
      .setPace(if (asynchronous) Pace.PACE_ASYNCHRONOUS else Pace.PACE_SYNCHRONOUS)
      .setParquet(ParquetOptions.newBuilder().setEncodings(Encodings.valueOf(
        s"ENCODINGS_${encodings.toUpperCase(Locale.ROOT)}"
      )))
}
