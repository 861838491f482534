// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

/** Raised when the pool's bytes are not what the protocol says. */
final class MalformedReplyException extends Exception {
  private static final long serialVersionUID = 1L;

  MalformedReplyException(String message) {
    super(message);
  }

  MalformedReplyException(String message, Throwable cause) {
    super(message, cause);
  }
}
