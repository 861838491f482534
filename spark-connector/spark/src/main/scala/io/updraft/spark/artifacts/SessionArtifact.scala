// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.artifacts

import java.io.{IOException, InputStream}

import com.google.protobuf.ByteString
import org.apache.spark.sql.updraft.{ArtifactFile, ArtifactRole, FunctionArtifacts}

import io.updraft.client.Artifact
import io.updraft.proto.v1

/** Artifact that a function needs, with the artifact's role. */
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

/** Artifact as measured and signed by the driver. A task reads the file only if the pool asks for
  * the artifact, which the pool does only once.
  */
final class SignedArtifact(signed: v1.Artifact, artifacts: FunctionArtifacts) extends Artifact {

  override def sha256(): ByteString = signed.getSha256

  override def sizeBytes(): Long = signed.getSizeBytes

  override def open(): InputStream = {
    val origin = artifacts.file(role)
    val measured = Measured.of(origin)
    if (measured.sha256 != sha256()) {
      throw new IOException(
        s"$role on this executor (${origin.file}, ${measured.sizeBytes} bytes) differs from what the driver " +
          "signed: run the query again if it was just replaced, or let the driver distribute it"
      )
    }
    measured.open()
  }

  private def role: ArtifactRole = signed.getRoleCase match {
    case v1.Artifact.RoleCase.BROADCAST_ID => ArtifactRole.Broadcast(signed.getBroadcastId)
    case v1.Artifact.RoleCase.DIRECTORY_NAME => ArtifactRole.Named(signed.getDirectoryName)
    case _ => ArtifactRole.Named(signed.getFileName)
  }
}
