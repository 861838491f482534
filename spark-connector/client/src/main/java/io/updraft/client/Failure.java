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
 * Why a call or the whole exchange ended: the table of errors in proto/README.md, read from the
 * client's side.
 *
 * @param kind whose fault it is
 * @param code name of the gRPC status code
 * @param message for the user
 * @param details what the pool said in-band, or null
 * @param cause what this side saw, or null
 * @param origin who found it out
 */
record Failure(
    ErrorKind kind, String code, String message, Error details, Throwable cause, Origin origin) {
  /** Who said that a call failed. */
  enum Origin {
    /** The pool or the writer, in-band or by a status. */
    POOL,
    /** The connection: it could not be made, or it broke. */
    CONNECTION,
    /** This side: cancelled, timed out, or the protocol was broken. */
    CLIENT
  }

  private static final Metadata.Key<String> RETRY_AFTER =
      Metadata.Key.of("retry-after-ms", Metadata.ASCII_STRING_MARSHALLER);

  /**
   * How gRPC in Java and gRPC in C say that a message is too large: with the code of a full pool.
   */
  private static final Pattern TOO_LARGE =
      Pattern.compile("message exceeds maximum size|message larger than max");

  /** A failure with the code that goes with its kind. */
  private Failure(ErrorKind kind, String message, Throwable cause, Origin origin) {
    this(kind, ErrorCodes.codeOf(kind).name(), message, null, cause, origin);
  }

  /** What the pool said in-band. */
  static Failure inBand(Error error) {
    ErrorKind kind = error.getKind();
    String code = ErrorCodes.codeOf(kind).name();
    return new Failure(kind, code, error.getMessage(), error, null, Origin.POOL);
  }

  /** What a status says, when nothing was said in-band. */
  static Failure ofStatus(Status status, ClientOptions options) {
    String peer = "the " + options.peer().noun() + " at " + options.endpoint();
    String text = String.valueOf(status.getDescription());
    Throwable cause = status.getCause();
    if (status.getCode() == Status.Code.CANCELLED && cause != null) {
      return new Failure(ErrorKind.ERROR_KIND_INTERNAL, text, cause, Origin.CLIENT);
    }
    if (status.isOk() || status.getCode() == Status.Code.CANCELLED) {
      String message = "the stream from " + peer + " ended without a finish";
      return new Failure(ErrorKind.ERROR_KIND_WORKER, message, null, Origin.CONNECTION);
    }
    ErrorKind kind = ErrorCodes.kindOf(status.getCode());
    String code = status.getCode().name();
    Optional<Throwable> refusal = refusedByTls(cause);
    if (refusal.isPresent()) {
      // Netty's message about other bytes than TLS's is all of them.
      String seen =
          refusal.get() instanceof NotSslRecordException
              ? "what it sends is not TLS"
              : refusal.get().getMessage();
      String message =
          "%s is not what TLS expects (%s says whom to trust): %s"
              .formatted(peer, options.peer().tlsCaFileSetting(), seen);
      kind = ErrorKind.ERROR_KIND_POOL_UNAVAILABLE;
      return new Failure(kind, code, message, null, cause, Origin.CLIENT);
    }
    if (TOO_LARGE.matcher(text).find()) {
      return new Failure(ErrorKind.ERROR_KIND_LIMIT, code, text, null, null, Origin.CLIENT);
    }
    if (status.getCode() == Status.Code.UNAUTHENTICATED) {
      text += "; " + acceptedToken(options);
    }
    Optional<String> unreached = Unreached.seen(cause, options.endpoint());
    if (unreached.isPresent()) {
      return new Failure(kind, code, unreached.get(), null, cause, Origin.CONNECTION);
    }
    boolean broken = cause instanceof IOException || isConnectionLoss(status);
    String reason = broken && cause != null ? text + ": " + cause : text;
    String message = peer + " answered " + code + ": " + reason;
    Origin origin = broken ? Origin.CONNECTION : Origin.POOL;
    return new Failure(kind, code, message, null, cause, origin);
  }

  /** How to give the peer a token that it accepts. */
  private static String acceptedToken(ClientOptions options) {
    Peer peer = options.peer();
    if (options.tokenFile().isPresent()) {
      return "put a token that the %s accepts into %s (%s)"
          .formatted(peer.noun(), options.tokenFile().get(), peer.tokenFileSetting());
    }
    String file =
        "a file with a token that the %s accepts (%s)"
            .formatted(peer.noun(), peer.tokenFileSetting());
    return options.token().isPresent()
        ? "correct %s, or name %s".formatted(peer.tokenSetting(), file)
        : "name " + file;
  }

  /**
   * Why this side does not talk to the peer: its certificate, or bytes that are no TLS. A handshake
   * that merely broke off is not meant: the pool may have died in it.
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

  /** The peer's bytes break the protocol, or cannot be read. */
  static Failure malformed(String message, Throwable cause) {
    return new Failure(
        ErrorKind.ERROR_KIND_PROTOCOL, "INTERNAL", message, null, cause, Origin.CLIENT);
  }

  static Failure tooLarge(long bytes, ClientOptions options) {
    String message =
        "a batch of %d bytes is larger than the %d of %s"
            .formatted(bytes, options.maxBatchBytes(), options.peer().maxBatchBytesSetting());
    return new Failure(ErrorKind.ERROR_KIND_LIMIT, message, null, Origin.CLIENT);
  }

  /** This side has lost what it announced. */
  static Failure unreadable(Artifact artifact, IOException cause) {
    String message =
        "an artifact of %d bytes that the function needs cannot be read: %s"
            .formatted(artifact.sizeBytes(), cause.getMessage());
    return new Failure(ErrorKind.ERROR_KIND_INTERNAL, message, cause, Origin.CLIENT);
  }

  /** This side could not store what came back. */
  static Failure notKept(Throwable cause) {
    String message = "the bytes that the writer returned could not be stored: " + cause;
    return new Failure(ErrorKind.ERROR_KIND_SINK, message, cause, Origin.CLIENT);
  }

  /** No connection was made in time. */
  static Failure unconnected(Endpoint endpoint) {
    String message = "no answer from " + endpoint.address();
    return new Failure(ErrorKind.ERROR_KIND_POOL_UNAVAILABLE, message, null, Origin.CONNECTION);
  }

  static Failure cancelled(String reason) {
    String message = "the exchange was cancelled: " + reason;
    return new Failure(
        ErrorKind.ERROR_KIND_UNSPECIFIED, "CANCELLED", message, null, null, Origin.CLIENT);
  }

  /** The exchange, with all of its calls, took longer than it may. */
  static Failure late(ClientOptions options) {
    Peer peer = options.peer();
    return deadline(
        "the exchange with the %s at %s took longer than %s s (%s)"
            .formatted(
                peer.noun(),
                options.endpoint(),
                options.deadline().toMillis() / 1000.0,
                peer.deadlineSetting()));
  }

  static Failure deadline(String message) {
    return new Failure(ErrorKind.ERROR_KIND_DEADLINE, message, null, Origin.CLIENT);
  }

  /**
   * Whether nobody listened, which is how a peer that restarts looks; not a handshake that broke.
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
   * Whether something else than the peer may have caused it: another service, another port, TLS on
   * one side only. The peer itself answers in other ways, but for a connection that breaks.
   */
  boolean mayBeOfAnotherListener() {
    return switch (code) {
      case "INVALID_ARGUMENT", "UNIMPLEMENTED", "INTERNAL", "UNKNOWN" -> true;
      case "UNAVAILABLE" -> origin != Origin.POOL && !isRefusedConnection();
      default -> false;
    };
  }

  /** Whether there was no room: the status, which comes last, says when to come again. */
  boolean isWithoutRoom() {
    return kind == ErrorKind.ERROR_KIND_POOL_FULL || kind == ErrorKind.ERROR_KIND_QUOTA;
  }

  /** The same failure, told in other words. */
  Failure withMessage(String other) {
    return new Failure(kind, code, other, details, cause, origin);
  }

  /** When the pool wants to be asked again, in milliseconds. */
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
