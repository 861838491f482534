// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.config

import java.util.Locale

import io.updraft.client.ClientOptions
import io.updraft.proto.v1.{Delivery, Encodings, Pace, ParquetOptions, WriteCommand}

/** Values of [[WriteConf]] for one write; sent to the executors. */
final case class WriteSettings(
    connection: ConnectionSettings,
    delivery: String,
    asynchronous: Boolean,
    maxInFlightBytes: Long,
    holdGpu: Option[Boolean],
    encodings: String,
    unsupported: String,
    fallback: String,
    batchBytes: Long
) {

  def endpoint: String = connection.endpoint

  /** Return whether encoded bytes come back to the executor. */
  def returns: Boolean = delivery == "return"

  /** Return the client's options on this machine; reads the token file. */
  def clientOptions(): ClientOptions = connection.clientOptions().build()

  /** Return the part of a file's command that the settings determine. Options of another format
    * than Parquet replace those of Parquet.
    */
  def command(): WriteCommand.Builder = {
    val builder = WriteCommand
      .newBuilder()
      .setDelivery(if (returns) Delivery.DELIVERY_RETURN else Delivery.DELIVERY_DIRECT)
      .setPace(if (asynchronous) Pace.PACE_ASYNCHRONOUS else Pace.PACE_SYNCHRONOUS)
      .setMaxInFlightBytes(maxInFlightBytes)
      .setParquet(ParquetOptions.newBuilder().setEncodings(Encodings.valueOf(
        s"ENCODINGS_${encodings.toUpperCase(Locale.ROOT)}"
      )))
    holdGpu.foreach(hold => builder.setHoldGpu(hold))
    builder
  }

  override def toString: String = s"WriteSettings($endpoint)"
}
