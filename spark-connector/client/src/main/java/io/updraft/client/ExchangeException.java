// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.updraft.proto.v1.Error;
import io.updraft.proto.v1.ErrorKind;
import java.util.Optional;

/**
 * Raised when an exchange failed: whose fault it is ({@link #kind}), the gRPC status ({@link
 * #code}) and, where the pool said more in-band, its {@link Error} with the Python traceback.
 */
public final class ExchangeException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  private final ErrorKind kind;
  private final String code;
  private final transient Error details;

  ExchangeException(ErrorKind kind, String code, String message, Error details, Throwable cause) {
    super(message, cause);
    this.kind = kind;
    this.code = code;
    this.details = details;
  }

  /** Whose fault it is and whether a retry can help. */
  public ErrorKind kind() {
    return kind;
  }

  /** The name of the gRPC status code, such as {@code UNAVAILABLE}. */
  public String code() {
    return code;
  }

  /** What the pool said in its last message; empty when it died before, or the failure is local. */
  public Optional<Error> details() {
    return Optional.ofNullable(details);
  }
}
