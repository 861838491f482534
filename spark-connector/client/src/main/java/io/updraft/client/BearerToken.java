// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Objects;
import java.util.Optional;

/**
 * The bearer token of one exchange, file or action. Each of its calls looks at the token file
 * again, because the token may have been replaced since the last. Used by the task's thread only:
 * it reads files.
 */
final class BearerToken {
  private final ClientOptions options;
  private String value;

  BearerToken(ClientOptions options) {
    this.options = options;
  }

  /** What a call is to send; empty without a token. */
  Optional<String> value() {
    return Optional.ofNullable(value);
  }

  /**
   * Looks for the token of the next call. A file that cannot be read, or is empty, is most likely
   * being replaced: the token that was found before stays.
   *
   * @return whether it is another one than before
   * @throws IllegalArgumentException if there was none before
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
