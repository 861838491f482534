// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.config

import io.updraft.client.ClientOptions

/** Settings with which the driver signs session functions.
  *
  * @param keyFile
  *   file with the Ed25519 key, on the driver
  * @param lifetimeMilliseconds
  *   time after which a signature can no longer open exchanges
  */
final case class SigningSettings(keyFile: String, lifetimeMilliseconds: Long)

/** Values of [[UpdraftConf]] for one query; sent to the executors.
  *
  * @param signing
  *   signing settings; None if functions are sent unsigned
  */
final case class UdfSettings(
    connection: ConnectionSettings,
    fallback: String,
    unsupported: String,
    batchBytes: Long,
    maxReplays: Int,
    replayBytes: Option[Long],
    deterministic: Boolean,
    signing: Option[SigningSettings]
) {

  def endpoint: String = connection.endpoint

  /** Return the client's options on this machine. */
  def clientOptions(): ClientOptions = {
    val builder = connection.clientOptions().maxReplays(maxReplays)
    replayBytes.foreach(builder.replayBytes)
    builder.build()
  }

  /** Return a text without the token, because logs and plans print case classes. */
  override def toString: String = s"UdfSettings($endpoint)"
}
