// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.artifacts

import java.io.InputStream

import com.google.protobuf.ByteString
import org.apache.spark.sql.updraft.{ArtifactFile, ArtifactRole, FunctionArtifacts}

import io.updraft.client.Artifact
import io.updraft.proto.v1

/** An artifact that a function needs, with what it is to the function. */
final class SessionArtifact(origin: ArtifactFile, measured: Measured) extends Artifact {

  override def sha256(): ByteString = measured.sha256

  override def sizeBytes(): Long = measured.sizeBytes

  override def open(): InputStream = measured.open()

  /** As the command lists it. */
  def listed: v1.Artifact = {
    val listed = v1.Artifact.newBuilder().setSha256(sha256()).setSizeBytes(sizeBytes())
    origin.role match {
      case ArtifactRole.Broadcast(id) => listed.setBroadcastId(id)
      case ArtifactRole.Named(name) if origin.file.isDirectory => listed.setDirectoryName(name)
      case ArtifactRole.Named(name) => listed.setFileName(name)
    }
    listed.build()
  }
}

object SessionArtifact {

  /** What the functions of a call need and this process has. */
  def of(artifacts: FunctionArtifacts): Seq[SessionArtifact] = artifacts.located.map(of)

  /** What the functions of a call need; raises an error where this process lacks some of it. */
  def ofAll(artifacts: FunctionArtifacts): Seq[SessionArtifact] =
    artifacts.roles.map(role => of(artifacts.file(role)))

  /** Reads the artifact when it is new to this process. */
  def of(origin: ArtifactFile): SessionArtifact = new SessionArtifact(origin, Measured.of(origin))
}
