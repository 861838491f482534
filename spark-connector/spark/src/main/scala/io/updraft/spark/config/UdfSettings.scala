// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.config

import java.time.Duration

import io.updraft.client.ClientOptions

/** What [[UpdraftConf]] says for one query; travels to the executors. */
final case class UdfSettings(
    connection: ConnectionSettings,
    fallback: String,
    unsupported: String,
    replyTimeoutMilliseconds: Long,
    deadlineMilliseconds: Long,
    windowBatches: Int,
    windowBytes: Long,
    batchBytes: Long,
    maxMessageBytes: Long,
    maxReplays: Int
) {

  def endpoint: String = connection.endpoint

  def connectTimeoutMilliseconds: Long = connection.connectTimeoutMilliseconds

  /** The client's options on this machine; reads the token file. */
  def clientOptions(): ClientOptions =
    connection
      .clientOptions()
      .replyTimeout(Duration.ofMillis(replyTimeoutMilliseconds))
      .deadline(Duration.ofMillis(deadlineMilliseconds))
      .windowBatches(windowBatches)
      .windowBytes(windowBytes)
      .maxMessageBytes(maxMessageBytes.toInt)
      .maxReplays(maxReplays)
      .build()

  /** Without the token: case classes are printed in logs and plans. */
  override def toString: String = s"UdfSettings($endpoint)"
}
