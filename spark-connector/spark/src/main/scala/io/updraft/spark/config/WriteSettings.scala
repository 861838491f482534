// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.config

import io.updraft.client.ClientOptions
import io.updraft.proto.v1.{Delivery, Pace, WriteCommand}

/** Values of [[WriteConf]] for one write; sent to the executors. */
final case class WriteSettings(
    connection: ConnectionSettings,
    delivery: String,
    asynchronous: Boolean,
    maxInFlightBytes: Long,
    holdGpu: Option[Boolean],
    unsupported: String,
    batchBytes: Long
) {

  def endpoint: String = connection.endpoint

  /** Return whether encoded bytes come back to the executor. */
  def returns: Boolean = delivery == "return"

  /** Return the client's options on this machine; reads the token file. */
  def clientOptions(): ClientOptions = connection.clientOptions().build()

  /** Return the part of a file's command that the settings determine. */
  def command(): WriteCommand.Builder = {
    val builder = WriteCommand
      .newBuilder()
      .setDelivery(if (returns) Delivery.DELIVERY_RETURN else Delivery.DELIVERY_DIRECT)
      .setPace(if (asynchronous) Pace.PACE_ASYNCHRONOUS else Pace.PACE_SYNCHRONOUS)
      .setMaxInFlightBytes(maxInFlightBytes)
    holdGpu.foreach(hold => builder.setHoldGpu(hold))
    builder
  }

  override def toString: String = s"WriteSettings($endpoint)"
}
