// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import com.google.protobuf.ByteString;
import java.io.IOException;
import java.io.InputStream;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import java.util.stream.Collectors;

/**
 * Gives one call's pool what it asks for before any batch is sent, on the task's thread: a function
 * that was too large for the command, and the artifacts that the pool lacks. One chunk is in memory
 * at a time: the next waits until the transport has taken the last.
 */
final class ArtifactUpload {
  private static final int CHUNK_BYTES = 1 << 20;

  private final ByteString function;
  private final Map<ByteString, Artifact> artifacts;
  private final ExchangeCore core;
  private final CoreLock lock;
  private final ExchangeCall call;
  private final int chunkBytes;
  private long bytesSent;

  /**
   * Prepares an upload.
   *
   * @param function the deferred function; empty when the command has it
   */
  ArtifactUpload(
      ByteString function,
      Collection<? extends Artifact> artifacts,
      ExchangeCore core,
      CoreLock lock,
      ExchangeCall call,
      long maxMessageBytes) {
    this.function = function;
    this.artifacts =
        artifacts.stream()
            .collect(Collectors.toMap(Artifact::sha256, Function.identity(), (one, same) -> one));
    this.core = core;
    this.lock = lock;
    this.call = call;
    this.chunkBytes = (int) Math.min(CHUNK_BYTES, maxMessageBytes / 2);
  }

  long bytesSent() {
    return bytesSent;
  }

  /**
   * Sends what the pool asks for until it has everything; false when the call was lost meanwhile.
   */
  boolean run() throws InterruptedException {
    if (!function.isEmpty() && !sendFunction()) {
      return false;
    }
    return artifacts.isEmpty() || sendArtifacts();
  }

  private boolean sendFunction() throws InterruptedException {
    if (!lock.awaitInCall(core::isPayloadWanted)) {
      return false;
    }
    for (int offset = 0; offset < function.size(); offset += chunkBytes) {
      int end = Math.min(offset + chunkBytes, function.size());
      if (!lock.awaitInCall(call::isReady)) {
        return false;
      }
      bytesSent += call.send(offset, function.substring(offset, end).toByteArray());
    }
    return true;
  }

  private boolean sendArtifacts() throws InterruptedException {
    while (true) {
      if (!lock.awaitInCall(core::isWantedKnown)) {
        return false;
      }
      List<ByteString> wanted = lock.read(core::takeWanted);
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
      throw Failure.malformed("the pool asked for a content that the function does not need", null)
          .toException();
    }
    return artifact;
  }

  private boolean send(Artifact artifact) throws InterruptedException {
    try (InputStream stream = artifact.open()) {
      long offset = 0;
      do {
        int length = (int) Math.min(chunkBytes, artifact.sizeBytes() - offset);
        byte[] chunk = stream.readNBytes(length);
        if (chunk.length < length) {
          throw new IOException("it ended after " + (offset + chunk.length) + " bytes");
        }
        if (!lock.awaitInCall(call::isReady)) {
          return false;
        }
        bytesSent += call.send(artifact.sha256(), offset, chunk);
        offset += length;
      } while (offset < artifact.sizeBytes());
      return true;
    } catch (IOException e) {
      throw Failure.unreadable(artifact, e).toException();
    }
  }
}
