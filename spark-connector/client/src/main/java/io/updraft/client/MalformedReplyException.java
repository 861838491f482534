// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

/** Raised if the pool's bytes do not follow the protocol. */
final class MalformedReplyException extends Exception {
  private static final long serialVersionUID = 1L;

  MalformedReplyException(String message) {
    super(message);
  }

  MalformedReplyException(String message, Throwable cause) {
    super(message, cause);
  }
}
