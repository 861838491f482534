// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Objects;
import java.util.Optional;

/**
 * Bearer token of one exchange, file or action. Each call rereads the token file, because the token
 * may have been replaced since the last call. Used only by the task's thread, because it reads
 * files.
 */
final class BearerToken {
  private final ClientOptions options;
  private String value;

  BearerToken(ClientOptions options) {
    this.options = options;
  }

  /** Return the token for a call; empty if there is none. */
  Optional<String> value() {
    return Optional.ofNullable(value);
  }

  /**
   * Read the token for the next call. If the file is empty or cannot be read, it is most likely
   * being replaced, so the previous token stays in use.
   *
   * @return whether the token has changed
   * @throws IllegalArgumentException if the file cannot be used and there is no previous token
   */
  boolean renew() {
    String found = options.tokenFile().map(this::read).orElse(options.token().orElse(null));
    boolean other = !Objects.equals(found, value);
    value = found;
    return other;
  }

  private String read(Path file) {
    try {
      String text = Files.readString(file).strip();
      if (!text.isEmpty()) {
        return text;
      }
    } catch (IOException e) {
      if (value == null) {
        throw unusable(file, e.toString(), e);
      }
    }
    if (value == null) {
      throw unusable(file, "the file is empty", null);
    }
    return value;
  }

  private IllegalArgumentException unusable(Path file, String reason, IOException cause) {
    String setting = options.peer().tokenFileSetting();
    return new IllegalArgumentException("%s = \"%s\": %s".formatted(setting, file, reason), cause);
  }
}
