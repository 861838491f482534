// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.updraft.proto.v1.Error;
import io.updraft.proto.v1.ErrorKind;
import java.util.Optional;

/**
 * Raised when an exchange or a file has failed for good, after all recovery. The message says what
 * happened, where, and which setting to check. The {@linkplain #getCause cause} is the exception
 * that this side saw, such as a broken connection. It is null if the pool or the writer reported
 * the failure.
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

  /**
   * Return the kind of error, which says who caused it and whether a retry can help: see the table
   * of errors in proto/README.md. {@code ERROR_KIND_UNSPECIFIED} after {@link Exchange#cancel}.
   */
  public ErrorKind kind() {
    return kind;
  }

  /** Return the name of the gRPC status code for {@link #kind}, such as {@code UNAVAILABLE}. */
  public String code() {
    return code;
  }

  /**
   * Return the pool's last message, with the class and the Python traceback of a user's exception.
   * Empty if the pool died before it could send a message or this side caused the failure, and
   * always after serialization.
   */
  public Optional<Error> details() {
    return Optional.ofNullable(details);
  }
}
