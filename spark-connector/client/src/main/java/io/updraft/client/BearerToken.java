// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.grpc.Metadata;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * Bearer token of one exchange, file or action. The token file is read again before each call,
 * because the token may have been replaced since the last call. Only the task's thread uses this
 * class, because reading a file may block.
 */
final class BearerToken {
  private static final Metadata.Key<String> AUTHORIZATION =
      Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);
  private static final Metadata.Key<String> TENANT =
      Metadata.Key.of("x-updraft-tenant", Metadata.ASCII_STRING_MARSHALLER);
  private static final Metadata.Key<String> TRACE_PARENT =
      Metadata.Key.of("traceparent", Metadata.ASCII_STRING_MARSHALLER);

  private final ClientOptions options;
  private String value = "";

  BearerToken(ClientOptions options) {
    this.options = options;
  }

  /** Return the headers of a call (section "Headers" of proto/README.md). */
  Metadata headers() {
    Metadata headers = new Metadata();
    if (!value.isEmpty()) {
      headers.put(AUTHORIZATION, "Bearer " + value);
    }
    if (!options.tenant().isEmpty()) {
      headers.put(TENANT, options.tenant());
    }
    if (!options.traceParent().isEmpty()) {
      headers.put(TRACE_PARENT, options.traceParent());
    }
    return headers;
  }

  /**
   * Read the token for the next call. If the file is empty or unreadable, it is probably being
   * replaced, and the previous token stays in use.
   *
   * @return whether the token has changed
   * @throws IllegalArgumentException if the file cannot be used and there is no previous token
   */
  boolean renew() {
    String found = options.tokenFile().isEmpty() ? options.token() : read(options.tokenFile());
    boolean other = !found.equals(value);
    value = found;
    return other;
  }

  private String read(String file) {
    try {
      String text = Files.readString(Path.of(file)).strip();
      if (!text.isEmpty()) {
        return text;
      }
    } catch (IOException e) {
      if (value.isEmpty()) {
        throw unusable(file, e.toString(), e);
      }
    }
    if (value.isEmpty()) {
      throw unusable(file, "the file is empty", null);
    }
    return value;
  }

  private IllegalArgumentException unusable(String file, String reason, IOException cause) {
    String setting = options.peer().setting(Peer.Setting.TOKEN_FILE);
    return new IllegalArgumentException("%s = \"%s\": %s".formatted(setting, file, reason), cause);
  }
}
