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
 * that was too large for the command, and the contents that the pool lacks. One chunk is in memory
 * at a time: the next waits until the transport has taken the last.
 */
final class ContentUpload {
  private static final int CHUNK_BYTES = 1 << 20;

  private final ByteString function;
  private final Map<ByteString, Content> contents;
  private final ExchangeState state;
  private final Attempt attempt;
  private final int chunkBytes;
  private long bytesSent;

  /**
   * Prepares an upload.
   *
   * @param function the deferred function; empty when the command has it
   */
  ContentUpload(
      ByteString function,
      Collection<? extends Content> contents,
      ExchangeState state,
      Attempt attempt,
      long maxMessageBytes) {
    this.function = function;
    this.contents =
        contents.stream()
            .collect(Collectors.toMap(Content::sha256, Function.identity(), (one, same) -> one));
    this.state = state;
    this.attempt = attempt;
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
    return contents.isEmpty() || sendContents();
  }

  private boolean sendFunction() throws InterruptedException {
    if (!state.awaitFunctionWanted()) {
      return false;
    }
    for (int offset = 0; offset < function.size(); offset += chunkBytes) {
      int end = Math.min(offset + chunkBytes, function.size());
      if (!state.awaitReady(attempt)) {
        return false;
      }
      bytesSent += attempt.send(offset, function.substring(offset, end).toByteArray());
    }
    return true;
  }

  private boolean sendContents() throws InterruptedException {
    while (true) {
      List<ByteString> wanted = state.awaitWanted();
      if (wanted == null || wanted.isEmpty()) {
        return wanted != null;
      }
      for (ByteString digest : wanted) {
        if (!send(contentOf(digest))) {
          return false;
        }
      }
    }
  }

  private Content contentOf(ByteString digest) {
    Content content = contents.get(digest);
    if (content == null) {
      throw Failure.malformed("the pool asked for a content that the function does not need", null)
          .toException();
    }
    return content;
  }

  private boolean send(Content content) throws InterruptedException {
    try (InputStream stream = content.open()) {
      long offset = 0;
      do {
        int length = (int) Math.min(chunkBytes, content.sizeBytes() - offset);
        byte[] chunk = stream.readNBytes(length);
        if (chunk.length < length) {
          throw new IOException("it ended after " + (offset + chunk.length) + " bytes");
        }
        if (!state.awaitReady(attempt)) {
          return false;
        }
        bytesSent += attempt.send(content.sha256(), offset, chunk);
        offset += length;
      } while (offset < content.sizeBytes());
      return true;
    } catch (IOException e) {
      throw Failure.unreadable(content, e).toException();
    }
  }
}
