// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.artifacts

import java.io.InputStream

import com.google.protobuf.ByteString
import org.apache.spark.sql.updraft.{ArtifactFile, ArtifactRole, FunctionArtifacts}

import io.updraft.client.Artifact
import io.updraft.proto.v1

/** Artifact that a function needs, with its role for the function. */
final class SessionArtifact(origin: ArtifactFile, measured: Measured) extends Artifact {

  override def sha256(): ByteString = measured.sha256

  override def sizeBytes(): Long = measured.sizeBytes

  override def open(): InputStream = measured.open()

  /** Return the artifact's entry in the command. */
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

  /** Return the artifacts that a call's functions need and this process has. */
  def of(artifacts: FunctionArtifacts): Seq[SessionArtifact] = artifacts.located.map(of)

  /** Return all artifacts that a call's functions need; raise an error if this process lacks any.
    */
  def ofAll(artifacts: FunctionArtifacts): Seq[SessionArtifact] =
    artifacts.roles.map(role => of(artifacts.file(role)))

  /** Return the artifact, measuring it if it is new to this process. */
  def of(origin: ArtifactFile): SessionArtifact = new SessionArtifact(origin, Measured.of(origin))
}
