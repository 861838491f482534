// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.grpc.Metadata;
import io.grpc.Status;
import io.netty.handler.ssl.NotSslRecordException;
import io.updraft.proto.v1.Error;
import io.updraft.proto.v1.ErrorKind;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.ConnectException;
import java.net.NoRouteToHostException;
import java.security.cert.CertificateException;
import java.util.Objects;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/**
 * Reason why a call or a whole exchange failed. Implements the client's side of the table of errors
 * in proto/README.md.
 *
 * @param kind kind of error, which says who caused it
 * @param code name of the gRPC status code
 * @param message message for the user
 * @param details the pool's in-band error, or null
 * @param cause exception seen by this side, or null
 * @param origin side that found the failure
 */
record Failure(
    ErrorKind kind, String code, String message, Error details, Throwable cause, Origin origin) {
  /** Side that reported a failed call. */
  enum Origin {
    /** The pool or the writer, in-band or through a status. */
    POOL,
    /** The connection: it could not be made, or it broke. */
    CONNECTION,
    /** This side: it cancelled, timed out, or found a violation of the protocol. */
    CLIENT
  }

  private static final Metadata.Key<String> RETRY_AFTER =
      Metadata.Key.of("retry-after-ms", Metadata.ASCII_STRING_MARSHALLER);

  /**
   * Texts with which gRPC for Java and gRPC for C report that a message is too large. The gRPC code
   * alone is not enough, because a full pool uses the same code.
   */
  private static final Pattern TOO_LARGE =
      Pattern.compile("message exceeds maximum size|message larger than max");

  /** Return the gRPC code of a kind of error: the table in proto/README.md. */
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
      case ERROR_KIND_POOL_FULL, ERROR_KIND_POOL_BUSY, ERROR_KIND_QUOTA ->
          Status.Code.RESOURCE_EXHAUSTED;
      case ERROR_KIND_POOL_UNAVAILABLE -> Status.Code.UNAVAILABLE;
      case ERROR_KIND_DEADLINE -> Status.Code.DEADLINE_EXCEEDED;
      case ERROR_KIND_UNAUTHENTICATED -> Status.Code.UNAUTHENTICATED;
      case ERROR_KIND_INTERNAL, ERROR_KIND_UNSPECIFIED, UNRECOGNIZED -> Status.Code.INTERNAL;
    };
  }

  /**
   * Return the kind of error for a code that came without an in-band error. UNKNOWN maps to
   * INTERNAL, because a user's error always comes in-band.
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

  /** Create a failure with the code that belongs to its kind. */
  private Failure(ErrorKind kind, String message, Throwable cause, Origin origin) {
    this(kind, codeOf(kind).name(), message, null, cause, origin);
  }

  /** Return the failure for an in-band error. */
  static Failure inBand(Error error) {
    ErrorKind kind = error.getKind();
    String code = codeOf(kind).name();
    return new Failure(kind, code, error.getMessage(), error, null, Origin.POOL);
  }

  /** Return the failure for a status without an in-band error. */
  static Failure ofStatus(Status status, ClientOptions options) {
    String peer = "the " + options.peer().noun() + " at " + options.endpoint();
    String text = String.valueOf(status.getDescription());
    Throwable cause = status.getCause();
    if (status.getCode() == Status.Code.CANCELLED && cause != null) {
      return new Failure(ErrorKind.ERROR_KIND_INTERNAL, text, cause, Origin.CLIENT);
    }
    if (status.isOk() || status.getCode() == Status.Code.CANCELLED) {
      String message = "the stream from " + peer + " ended without a finish message";
      return new Failure(ErrorKind.ERROR_KIND_WORKER, message, null, Origin.CONNECTION);
    }
    ErrorKind kind = kindOf(status.getCode());
    String code = status.getCode().name();
    Optional<Throwable> refusal = refusedByTls(cause);
    if (refusal.isPresent()) {
      // Netty's message is a dump of the bytes that are not TLS.
      String seen =
          refusal.get() instanceof NotSslRecordException
              ? "its answer is not TLS"
              : refusal.get().getMessage();
      String message =
          "TLS with %s failed (%s lists the authorities to trust): %s"
              .formatted(peer, options.peer().setting(Peer.Setting.TLS_CA_FILE), seen);
      kind = ErrorKind.ERROR_KIND_POOL_UNAVAILABLE;
      return new Failure(kind, code, message, null, cause, Origin.CLIENT);
    }
    if (TOO_LARGE.matcher(text).find()) {
      return new Failure(ErrorKind.ERROR_KIND_LIMIT, code, text, null, null, Origin.CLIENT);
    }
    if (status.getCode() == Status.Code.UNAUTHENTICATED) {
      text += "; " + acceptedToken(options);
    }
    Optional<String> unreached = ConnectFailure.seen(cause, options.endpoint());
    if (unreached.isPresent()) {
      return new Failure(kind, code, unreached.get(), null, cause, Origin.CONNECTION);
    }
    boolean broken = cause instanceof IOException || isConnectionLoss(status);
    String reason = broken && cause != null ? text + ": " + cause : text;
    String message = peer + " answered " + code + ": " + reason;
    Origin origin = broken ? Origin.CONNECTION : Origin.POOL;
    return new Failure(kind, code, message, null, cause, origin);
  }

  /** Return advice on how to provide a token that the peer accepts. */
  private static String acceptedToken(ClientOptions options) {
    Peer peer = options.peer();
    if (!options.tokenFile().isEmpty()) {
      return "put a token that the %s accepts into %s (%s)"
          .formatted(peer.noun(), options.tokenFile(), peer.setting(Peer.Setting.TOKEN_FILE));
    }
    String set =
        "set %s to a file with a token that the %s accepts"
            .formatted(peer.setting(Peer.Setting.TOKEN_FILE), peer.noun());
    return !options.token().isEmpty()
        ? "correct %s, or %s".formatted(peer.setting(Peer.Setting.TOKEN), set)
        : set;
  }

  /**
   * Return the exception that makes this side refuse to talk to the peer: a bad certificate, or
   * bytes that are not TLS. A handshake that was interrupted is not a refusal, because the pool may
   * have died during the handshake.
   */
  private static Optional<Throwable> refusedByTls(Throwable cause) {
    return Stream.iterate(cause, Objects::nonNull, Throwable::getCause)
        .filter(e -> e instanceof CertificateException || e instanceof NotSslRecordException)
        .findFirst();
  }

  private static boolean isConnectionLoss(Status status) {
    String text = String.valueOf(status.getDescription());
    return status.getCode() == Status.Code.UNAVAILABLE
        && (text.startsWith("Network closed")
            || text.startsWith("io exception")
            || text.startsWith("Keepalive failed"));
  }

  /** Return the failure for bytes from the peer that break the protocol or cannot be read. */
  static Failure malformed(String message, Throwable cause) {
    return new Failure(
        ErrorKind.ERROR_KIND_PROTOCOL, "INTERNAL", message, null, cause, Origin.CLIENT);
  }

  static Failure tooLarge(long bytes, ClientOptions options) {
    String message =
        "a batch of %d bytes is larger than the %d that can be sent: make its rows smaller"
            .formatted(bytes, options.maxBatchBytes());
    return new Failure(ErrorKind.ERROR_KIND_LIMIT, message, null, Origin.CLIENT);
  }

  /** Return the failure for an announced artifact that this side can no longer read. */
  static Failure unreadable(Artifact artifact, IOException cause) {
    String message =
        "cannot read an artifact of %d bytes that the function needs: %s"
            .formatted(artifact.sizeBytes(), cause.getMessage());
    return new Failure(ErrorKind.ERROR_KIND_INTERNAL, message, cause, Origin.CLIENT);
  }

  /** Return the failure for returned bytes that this side could not store. */
  static Failure notKept(Throwable cause) {
    String message = "cannot store the bytes that the writer returned: " + cause;
    return new Failure(ErrorKind.ERROR_KIND_SINK, message, cause, Origin.CLIENT);
  }

  /** Return the failure for a connection that was not made in time. */
  static Failure unconnected(Endpoint endpoint) {
    String message = "no answer from " + endpoint.address();
    return new Failure(ErrorKind.ERROR_KIND_POOL_UNAVAILABLE, message, null, Origin.CONNECTION);
  }

  static Failure cancelled(String reason) {
    String message = "the exchange was cancelled: " + reason;
    return new Failure(
        ErrorKind.ERROR_KIND_UNSPECIFIED, "CANCELLED", message, null, null, Origin.CLIENT);
  }

  /** Return the failure for an exchange whose calls together exceeded the deadline. */
  static Failure late(ClientOptions options) {
    Peer peer = options.peer();
    return deadline(
        "the exchange with the %s at %s took longer than %s s%s"
            .formatted(
                peer.noun(),
                options.endpoint(),
                options.deadline().toMillis() / 1000.0,
                peer.note(Peer.Setting.DEADLINE)));
  }

  static Failure deadline(String message) {
    return new Failure(ErrorKind.ERROR_KIND_DEADLINE, message, null, Origin.CLIENT);
  }

  /**
   * Return whether nothing listened at the endpoint, for example while a peer restarts. False for a
   * broken handshake.
   */
  boolean isRefusedConnection() {
    return Stream.iterate(cause, Objects::nonNull, Throwable::getCause)
        .anyMatch(
            e ->
                e instanceof ConnectException
                    || e instanceof NoRouteToHostException
                    || e instanceof FileNotFoundException);
  }

  /**
   * Return whether a listener other than the peer may have caused the failure: another service,
   * another port, or TLS on one side only. Among these failures, only a broken connection is likely
   * to come from the expected peer.
   */
  boolean mayBeOfAnotherListener() {
    return switch (code) {
      case "INVALID_ARGUMENT", "UNIMPLEMENTED", "INTERNAL", "UNKNOWN" -> true;
      case "UNAVAILABLE" -> origin != Origin.POOL && !isRefusedConnection();
      default -> false;
    };
  }

  /**
   * Return whether the failure means that the peer was full. The call's status, which follows,
   * contains the time to retry.
   */
  boolean isWithoutRoom() {
    return switch (kind) {
      case ERROR_KIND_POOL_FULL, ERROR_KIND_POOL_BUSY, ERROR_KIND_QUOTA -> true;
      default -> false;
    };
  }

  /** Return the same failure with another message. */
  Failure withMessage(String other) {
    return new Failure(kind, code, other, details, cause, origin);
  }

  /** Return the pool's retry hint in milliseconds. */
  static OptionalLong retryAfterMilliseconds(Metadata trailers) {
    String value = trailers == null ? null : trailers.get(RETRY_AFTER);
    try {
      return value == null ? OptionalLong.empty() : OptionalLong.of(Long.parseLong(value.strip()));
    } catch (NumberFormatException e) {
      return OptionalLong.empty();
    }
  }

  ExchangeException toException() {
    return new ExchangeException(kind, code, message, details, cause);
  }
}
