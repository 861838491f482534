// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.config

import io.updraft.client.ClientOptions

/** How the driver signs session functions.
  *
  * @param keyFile
  *   with the Ed25519 key, on the driver
  * @param lifetimeMilliseconds
  *   after which a signature opens no more exchanges
  */
final case class SigningSettings(keyFile: String, lifetimeMilliseconds: Long)

/** What [[UpdraftConf]] says for one query; travels to the executors.
  *
  * @param signing
  *   None: functions travel without a signature
  */
final case class UdfSettings(
    connection: ConnectionSettings,
    fallback: String,
    unsupported: String,
    windowBatches: Int,
    batchBytes: Long,
    maxReplays: Int,
    replayBytes: Option[Long],
    deterministic: Boolean,
    signing: Option[SigningSettings]
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
