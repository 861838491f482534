// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.config

import java.io.IOException
import java.nio.file.{Files, Path}
import java.time.Duration

import io.updraft.client.{ClientOptions, Endpoint, SettingNames}
import io.updraft.spark.plan.Obstacle

/** What [[UpdraftConf]] says for one query; travels to the executors. */
final case class UdfSettings(
    endpoint: String,
    fallback: String,
    unsupported: String,
    token: Option[String],
    tokenFile: Option[String],
    tlsCaFile: Option[String],
    tlsCertificateFile: Option[String],
    tlsKeyFile: Option[String],
    tenant: Option[String],
    connectTimeoutMilliseconds: Long,
    acquireTimeoutMilliseconds: Long,
    replyTimeoutMilliseconds: Long,
    deadlineMilliseconds: Long,
    windowBatches: Int,
    windowBytes: Long,
    batchBytes: Long,
    maxMessageBytes: Long,
    maxReplays: Int
) {

  /** The client's options on this machine; reads the token file. */
  def clientOptions(): ClientOptions = {
    val builder = ClientOptions
      .builder(Endpoint.parse(endpoint))
      .connectTimeout(Duration.ofMillis(connectTimeoutMilliseconds))
      .acquireTimeout(Duration.ofMillis(acquireTimeoutMilliseconds))
      .replyTimeout(Duration.ofMillis(replyTimeoutMilliseconds))
      .deadline(Duration.ofMillis(deadlineMilliseconds))
      .windowBatches(windowBatches)
      .windowBytes(windowBytes)
      .maxMessageBytes(maxMessageBytes.toInt)
      .maxReplays(maxReplays)
    tokenFile.map(readToken).orElse(token).foreach(builder.token)
    tlsCaFile.foreach(file => builder.tlsCaFile(Path.of(file)))
    tlsCertificateFile.foreach(file => builder.tlsCertificateFile(Path.of(file)))
    tlsKeyFile.foreach(file => builder.tlsKeyFile(Path.of(file)))
    tenant.foreach(builder.tenant)
    builder.build()
  }

  /** Raises an error where an operator may not stay with Spark's own Python workers. */
  def permitStock(operator: String, obstacle: Obstacle): Unit =
    if (unsupported == "fail") {
      throw new UnsupportedOperationException(
        s"$operator cannot run on the pool: $obstacle. Set ${UpdraftConf.unsupported.key} = local to " +
          "run it in Spark's own Python workers"
      )
    }

  private def readToken(file: String): String =
    try Files.readString(Path.of(file)).strip()
    catch {
      case e: IOException =>
        throw new IllegalArgumentException(s"""${SettingNames.TOKEN_FILE} = "$file": $e""", e)
    }

  /** Without the token: case classes are printed in logs and plans. */
  override def toString: String = s"UdfSettings($endpoint)"
}
