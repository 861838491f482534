// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.config

import io.updraft.client.ClientOptions

/** What [[UpdraftConf]] says for one query; travels to the executors. */
final case class UdfSettings(
    connection: ConnectionSettings,
    fallback: String,
    unsupported: String,
    windowBatches: Int,
    batchBytes: Long,
    maxReplays: Int,
    replayBytes: Option[Long],
    deterministic: Boolean
) {

  def endpoint: String = connection.endpoint

  /** The client's options on this machine. */
  def clientOptions(): ClientOptions = {
    val builder = connection.clientOptions().windowBatches(windowBatches).maxReplays(maxReplays)
    replayBytes.foreach(builder.replayBytes)
    builder.build()
  }

  /** Without the token: case classes are printed in logs and plans. */
  override def toString: String = s"UdfSettings($endpoint)"
}
