// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import com.google.protobuf.ByteString;
import io.updraft.proto.v1.ArtifactPart;
import io.updraft.proto.v1.PayloadPart;
import io.updraft.proto.v1.RequestMetadata;
import java.io.IOException;
import java.io.InputStream;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import java.util.stream.Collectors;

/**
 * Upload of what the pool asks for before the first batch of a call: a function that was too large
 * for the command, and the artifacts that the pool does not have. The upload runs on the task's
 * thread. It reads the next part after the transport has accepted the previous part, so it holds
 * one part in memory at a time.
 */
final class ArtifactUpload {
  private static final int PART_BYTES = 1 << 20;

  private final ByteString function;
  private final Map<ByteString, Artifact> artifacts;
  private final CallShell<ExchangeCore> shell;
  private final FlightCall call;
  private final int partBytes;
  private long bytesSent;

  /**
   * Prepare an upload.
   *
   * @param function the deferred function; empty if the command contains it
   */
  ArtifactUpload(
      ByteString function,
      Collection<? extends Artifact> artifacts,
      CallShell<ExchangeCore> shell,
      FlightCall call) {
    this.function = function;
    this.artifacts =
        artifacts.stream()
            .collect(Collectors.toMap(Artifact::sha256, Function.identity(), (one, same) -> one));
    this.shell = shell;
    this.call = call;
    this.partBytes = Math.min(PART_BYTES, shell.options.maxMessageBytes() / 2);
  }

  long bytesSent() {
    return bytesSent;
  }

  /** Send everything that the pool asks for. Return false if the call was lost before that. */
  boolean run() throws InterruptedException {
    if (!function.isEmpty() && !sendFunction()) {
      return false;
    }
    return artifacts.isEmpty() || sendArtifacts();
  }

  private boolean sendFunction() throws InterruptedException {
    if (!shell.awaitInCall(shell.core::isPayloadWanted)) {
      return false;
    }
    for (int offset = 0; offset < function.size(); offset += partBytes) {
      int end = Math.min(offset + partBytes, function.size());
      if (!shell.awaitInCall(call::isReady)) {
        return false;
      }
      send(
          RequestMetadata.newBuilder().setPayload(PayloadPart.newBuilder().setOffset(offset)),
          function.substring(offset, end).toByteArray());
    }
    return true;
  }

  private boolean sendArtifacts() throws InterruptedException {
    while (true) {
      if (!shell.awaitInCall(shell.core::isWantedKnown)) {
        return false;
      }
      List<ByteString> wanted = shell.read(shell.core::takeWanted);
      if (wanted.isEmpty()) {
        return true;
      }
      for (ByteString digest : wanted) {
        if (!send(artifactOf(digest))) {
          return false;
        }
      }
    }
  }

  private Artifact artifactOf(ByteString digest) {
    Artifact artifact = artifacts.get(digest);
    if (artifact == null) {
      throw Failure.malformed(
              "the pool asked for an artifact that the function does not need", null)
          .toException();
    }
    return artifact;
  }

  private boolean send(Artifact artifact) throws InterruptedException {
    try (InputStream stream = artifact.open()) {
      long offset = 0;
      do {
        int length = (int) Math.min(partBytes, artifact.sizeBytes() - offset);
        byte[] part = stream.readNBytes(length);
        if (part.length < length) {
          throw new IOException("it ended after " + (offset + part.length) + " bytes");
        }
        if (!shell.awaitInCall(call::isReady)) {
          return false;
        }
        send(
            RequestMetadata.newBuilder()
                .setArtifact(
                    ArtifactPart.newBuilder().setSha256(artifact.sha256()).setOffset(offset)),
            part);
        offset += length;
      } while (offset < artifact.sizeBytes());
      return true;
    } catch (IOException e) {
      throw Failure.unreadable(artifact, e).toException();
    }
  }

  private void send(RequestMetadata.Builder metadata, byte[] data) {
    bytesSent += call.send(OutgoingMessage.of(metadata.build(), data));
  }
}
