// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.contents

import java.io.{BufferedInputStream, FileInputStream, InputStream}

import com.google.protobuf.ByteString
import org.apache.spark.sql.updraft.{Belongings, ContentFile, ContentRole, SparkInternals}

import io.updraft.client.Content
import io.updraft.proto.v1

/** A content that a function needs, with what it is to the function. */
final class SessionContent(origin: ContentFile, measured: Measured) extends Content {

  override def sha256(): ByteString = measured.sha256

  override def sizeBytes(): Long = measured.sizeBytes

  override def open(): InputStream = measured.open()

  /** As the command lists it. */
  def listed: v1.Artifact = {
    val content = v1.Artifact.newBuilder().setSha256(sha256()).setSizeBytes(sizeBytes())
    origin.role match {
      case ContentRole.Variable(id) => content.setBroadcastId(id)
      case ContentRole.Named(name) if origin.file.isDirectory => content.setDirectoryName(name)
      case ContentRole.Named(name) => content.setFileName(name)
    }
    content.build()
  }
}

object SessionContent {

  /** What the functions of a call need, measured once in each executor. */
  def of(belongings: Belongings): Seq[SessionContent] =
    belongings.contents.map(origin => new SessionContent(origin, Measured.of(origin)))

  /** The bytes as stock's worker would read them. */
  private[contents] def read(origin: ContentFile): InputStream = {
    val stream = new BufferedInputStream(new FileInputStream(origin.file))
    if (origin.isEncrypted) SparkInternals.decrypted(stream) else stream
  }
}
