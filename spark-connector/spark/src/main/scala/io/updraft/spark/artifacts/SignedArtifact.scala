// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.artifacts

import java.io.{IOException, InputStream}

import com.google.protobuf.ByteString
import org.apache.spark.sql.updraft.{ArtifactRole, FunctionArtifacts}

import io.updraft.client.Artifact
import io.updraft.proto.v1

/** Artifact as measured and signed by the driver. A task looks for the bytes only when the pool
  * asks for them, which it does once.
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
