// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.grpc.Status;
import io.updraft.proto.v1.ErrorKind;

/** Mapping between kinds of errors and gRPC codes: the table in proto/README.md. */
final class ErrorCodes {
  private ErrorCodes() {}

  static Status.Code codeOf(ErrorKind kind) {
    return switch (kind) {
      case ERROR_KIND_USER -> Status.Code.UNKNOWN;
      case ERROR_KIND_WORKER, ERROR_KIND_SINK -> Status.Code.ABORTED;
      case ERROR_KIND_PROTOCOL, ERROR_KIND_LIMIT, ERROR_KIND_WRITE_OPTION, ERROR_KIND_ENCODE ->
          Status.Code.INVALID_ARGUMENT;
      case ERROR_KIND_FUNCTION_NOT_FOUND -> Status.Code.NOT_FOUND;
      case ERROR_KIND_FUNCTION_REFUSED, ERROR_KIND_WRITE_REFUSED, ERROR_KIND_PERMISSION_DENIED ->
          Status.Code.PERMISSION_DENIED;
      case ERROR_KIND_VERSION, ERROR_KIND_FUNCTION_LOAD -> Status.Code.FAILED_PRECONDITION;
      case ERROR_KIND_POOL_FULL, ERROR_KIND_QUOTA -> Status.Code.RESOURCE_EXHAUSTED;
      case ERROR_KIND_POOL_UNAVAILABLE -> Status.Code.UNAVAILABLE;
      case ERROR_KIND_DEADLINE -> Status.Code.DEADLINE_EXCEEDED;
      case ERROR_KIND_UNAUTHENTICATED -> Status.Code.UNAUTHENTICATED;
      case ERROR_KIND_INTERNAL, ERROR_KIND_UNSPECIFIED, UNRECOGNIZED -> Status.Code.INTERNAL;
    };
  }

  /**
   * Return the kind of error for a code without an in-band error. UNKNOWN maps to INTERNAL, because
   * a user's error always comes in-band.
   */
  static ErrorKind kindOf(Status.Code code) {
    return switch (code) {
      case ABORTED -> ErrorKind.ERROR_KIND_WORKER;
      case INVALID_ARGUMENT -> ErrorKind.ERROR_KIND_PROTOCOL;
      case NOT_FOUND -> ErrorKind.ERROR_KIND_FUNCTION_NOT_FOUND;
      case PERMISSION_DENIED -> ErrorKind.ERROR_KIND_FUNCTION_REFUSED;
      case FAILED_PRECONDITION -> ErrorKind.ERROR_KIND_VERSION;
      case RESOURCE_EXHAUSTED -> ErrorKind.ERROR_KIND_POOL_FULL;
      case UNAVAILABLE -> ErrorKind.ERROR_KIND_POOL_UNAVAILABLE;
      case DEADLINE_EXCEEDED -> ErrorKind.ERROR_KIND_DEADLINE;
      case UNAUTHENTICATED -> ErrorKind.ERROR_KIND_UNAUTHENTICATED;
      default -> ErrorKind.ERROR_KIND_INTERNAL;
    };
  }
}
