// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import com.google.protobuf.ByteString;
import com.google.protobuf.CodedInputStream;
import io.grpc.Status;
import io.netty.handler.ssl.SslHandshakeTimeoutException;
import io.updraft.proto.v1.ErrorKind;
import io.updraft.proto.v1.PoolStatus;
import io.updraft.proto.v1.SignedStatement;
import java.io.IOException;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.stream.Stream;

/**
 * Check that a pool accepts this client, made before tasks start. It covers the client's
 * certificate and token, the versions that both sides must share, and the key that signs the
 * client's functions. If several pods share one name, the check asks only one pod, because all of
 * these pods are replicas with the same settings.
 */
public final class PoolCheck {
  private static final int BODY_FIELD_TAG = 1 << 3 | 2;
  private static final String WHOAMI_ACTION = "updraft.whoami";
  private static final String SIGNATURE_ACTION = "updraft.check_signature";

  private PoolCheck() {}

  /** Problem to fix before the pool can run functions of this client. */
  public enum Cause {
    /** The listener at the endpoint is not a pool that this client can talk to. */
    ENDPOINT,
    /** One side does not trust the other's certificate. */
    CERTIFICATE,
    /** The token is missing or unknown. */
    TOKEN,
    /** The caller's identity lacks the right or belongs to another tenant. */
    PERMISSION,
    /** The two sides differ in a version that they must share. */
    VERSION,
    /** The pool does not accept functions of sessions. */
    SESSION_FUNCTIONS,
    /** The function is unsigned, or signed by a key that the pool does not know. */
    SIGNATURE
  }

  /**
   * Reason why no exchange with the pool can succeed.
   *
   * @param message message for the user
   */
  public record Refusal(Cause cause, String message) {}

  /**
   * Answer of a pool.
   *
   * @param refusal reason why the pool accepts no call of this client
   * @param silence message for the user if no connection was made or no answer came in time;
   *     otherwise empty
   * @param status status of the pool. Empty if unknown, for example because the pool is restarting
   *     or full; tasks then handle that
   * @param caller the pool's view of this client, as the JSON object of {@code updraft.whoami}
   * @param signature reason why the pool runs no function signed by the client's key
   */
  public record Answer(
      Optional<Refusal> refusal,
      Optional<String> silence,
      Optional<PoolStatus> status,
      Optional<String> caller,
      Optional<Refusal> signature) {
    private static final Answer UNKNOWN = of(null, null);

    private static Answer of(Refusal refusal, String silence) {
      return new Answer(
          Optional.ofNullable(refusal),
          Optional.ofNullable(silence),
          Optional.empty(),
          Optional.empty(),
          Optional.empty());
    }

    /** Return whether the pool accepts this client's calls. */
    public boolean isAccepted() {
      return status.isPresent();
    }

    /**
     * Return why the pool cannot run a session's function; empty if it can.
     *
     * @param pythonVersion Python version that pickled the function
     * @param sparkVersion Spark version of the session
     */
    public Optional<Refusal> refusalOf(String pythonVersion, String sparkVersion) {
      return refusal.or(() -> status.flatMap(pool -> mismatch(pool, pythonVersion, sparkVersion)));
    }

    /** Return why the pool cannot run a session's unsigned functions; empty if it can. */
    public Optional<Refusal> refusalOfUnsigned() {
      String message = "the pool runs only functions that their driver has signed";
      return status
          .filter(PoolStatus::getSignaturesRequired)
          .map(pool -> new Refusal(Cause.SIGNATURE, message));
    }
  }

  /**
   * Ask once, waiting at most the connect timeout for each answer.
   *
   * @param signed a statement without a function, signed by the client's key; empty if the client
   *     does not sign
   * @throws IllegalArgumentException if the options' TLS files or token file cannot be used
   * @throws InterruptedException if the thread was interrupted; the call is then cancelled
   */
  public static Answer ask(ClientOptions options, Optional<SignedStatement> signed)
      throws InterruptedException {
    ChannelPool.Connection connection = ChannelPool.acquireForQuestion(options);
    try {
      ActionCall.Outcome outcome = run(connection, options, Peer.POOL.statusAction());
      if (isCutOff(outcome, options)) {
        // The pool may have ended at this moment, so blame the certificate only if the pool closes
        // a second connection too.
        Optional<String> wanted = Listener.wantsCertificate(options);
        outcome = run(connection, options, Peer.POOL.statusAction());
        if (wanted.isPresent() && isCutOff(outcome, options)) {
          return Answer.of(new Refusal(Cause.CERTIFICATE, wanted.get()), null);
        }
      }
      if (!outcome.status().isOk()) {
        return refused(outcome, options);
      }
      Optional<PoolStatus> status = body(outcome).flatMap(PoolCheck::status);
      if (status.isEmpty()) {
        // Another service listens there. The tasks report its error.
        return Answer.UNKNOWN;
      }
      Optional<String> caller =
          body(run(connection, options, WHOAMI_ACTION)).map(ByteString::toStringUtf8);
      Optional<Refusal> signature = Optional.empty();
      if (signed.isPresent()) {
        FlightAction check = new FlightAction(SIGNATURE_ACTION, signed.get().toByteString());
        signature = refusedSignature(ActionCall.run(connection, options, check).status());
      }
      return new Answer(Optional.empty(), Optional.empty(), status, caller, signature);
    } finally {
      connection.release();
    }
  }

  /** Ask the pool on behalf of a client without a signing key. */
  public static Answer ask(ClientOptions options) throws InterruptedException {
    return ask(options, Optional.empty());
  }

  private static ActionCall.Outcome run(
      ChannelPool.Connection connection, ClientOptions options, String action)
      throws InterruptedException {
    return ActionCall.run(connection, options, new FlightAction(action, ByteString.EMPTY));
  }

  /**
   * Return whether a TLS connection was made and then broke off, as happens if the pool rejects the
   * client's certificate.
   */
  private static boolean isCutOff(ActionCall.Outcome outcome, ClientOptions options) {
    Status status = outcome.status();
    return options.endpoint().transport() == Endpoint.Transport.TLS
        && !status.isOk()
        && Failure.ofStatus(status, options).origin() == Failure.Origin.CONNECTION
        && silenceOf(status, options).isEmpty();
  }

  /**
   * Return why the pool refuses the key; empty if the pool accepts it. A pool that does not check
   * signatures does not have this action and accepts every key.
   */
  private static Optional<Refusal> refusedSignature(Status status) {
    return status.getCode() == Status.Code.PERMISSION_DENIED
        ? Optional.of(new Refusal(Cause.SIGNATURE, status.getDescription()))
        : Optional.empty();
  }

  /** Return the result of an action; empty if it cannot be read. */
  private static Optional<ByteString> body(ActionCall.Outcome outcome) {
    try {
      CodedInputStream input = CodedInputStream.newInstance(outcome.result());
      return outcome.status().isOk() && input.readTag() == BODY_FIELD_TAG
          ? Optional.of(input.readBytes())
          : Optional.empty();
    } catch (IOException e) {
      return Optional.empty();
    }
  }

  private static Optional<PoolStatus> status(ByteString body) {
    try {
      return Optional.of(PoolStatus.parseFrom(body));
    } catch (IOException e) {
      return Optional.empty();
    }
  }

  private static Answer refused(ActionCall.Outcome outcome, ClientOptions options)
      throws InterruptedException {
    Optional<String> silence = silenceOf(outcome.status(), options);
    if (silence.isPresent()) {
      return Answer.of(null, silence.get());
    }
    Failure failure = Failure.ofStatus(outcome.status(), options);
    if (outcome.status().getCode() == Status.Code.UNAUTHENTICATED) {
      return Answer.of(new Refusal(Cause.TOKEN, failure.message()), null);
    }
    if (outcome.status().getCode() == Status.Code.PERMISSION_DENIED) {
      return Answer.of(new Refusal(Cause.PERMISSION, failure.message()), null);
    }
    if (failure.mayBeOfAnotherListener()) {
      Optional<String> wrongPeer = Listener.wrongPeer(options);
      if (wrongPeer.isPresent()) {
        return Answer.of(new Refusal(Cause.ENDPOINT, wrongPeer.get()), null);
      }
    }
    boolean refusedByTls =
        failure.kind() == ErrorKind.ERROR_KIND_POOL_UNAVAILABLE
            && failure.origin() == Failure.Origin.CLIENT;
    return refusedByTls
        ? Answer.of(new Refusal(Cause.CERTIFICATE, failure.message()), null)
        : Answer.UNKNOWN;
  }

  /**
   * Return a message if the peer did not answer in time; otherwise empty. This includes Netty's
   * timeout of a TLS handshake, which may fire before the timeout of this check.
   */
  private static Optional<String> silenceOf(Status status, ClientOptions options) {
    String told = "the service at %s did not answer".formatted(options.endpoint());
    if (status.getCode() == Status.Code.DEADLINE_EXCEEDED) {
      double seconds = options.connectTimeout().toMillis() / 1000.0;
      return Optional.of("%s within %s s".formatted(told, seconds));
    }
    return Stream.iterate(status.getCause(), Objects::nonNull, Throwable::getCause)
        .filter(SslHandshakeTimeoutException.class::isInstance)
        .findFirst()
        .map(timeout -> told + ": " + timeout.getMessage())
        .or(() -> ConnectFailure.seen(status.getCause(), options.endpoint()));
  }

  private static Optional<Refusal> mismatch(
      PoolStatus pool, String pythonVersion, String sparkVersion) {
    if (pool.getProtocolVersion() != Exchange.PROTOCOL_VERSION) {
      return version(
          "the pool speaks version %d of the protocol, this connector version %d"
              .formatted(pool.getProtocolVersion(), Exchange.PROTOCOL_VERSION));
    }
    if (!pool.getSessionFunctionsAllowed()) {
      return Optional.of(
          new Refusal(
              Cause.SESSION_FUNCTIONS,
              "the pool runs registered functions only: its operator has to start it with"
                  + " --session-functions unsigned or signed to run functions from Spark sessions"));
    }
    if (!pool.getPythonVersion().isEmpty() && pool.getPysparkVersion().isEmpty()) {
      return Optional.of(
          new Refusal(
              Cause.SESSION_FUNCTIONS,
              "the pool has no pyspark, so it cannot run functions from Spark sessions"));
    }
    return differs("Python", pythonVersion, pool.getPythonVersion())
        .or(() -> differs("pyspark", sparkVersion, pool.getPysparkVersion()));
  }

  private static Optional<Refusal> differs(String what, String client, String pool) {
    if (pool.isEmpty() || minor(client).equals(minor(pool))) {
      return Optional.empty();
    }
    return version(
        "the pool has %s %s, the session %s: their major.minor must be equal"
            .formatted(what, pool, client));
  }

  private static Optional<Refusal> version(String message) {
    return Optional.of(new Refusal(Cause.VERSION, message));
  }

  private static List<String> minor(String version) {
    return Arrays.stream(version.split("\\.")).limit(2).toList();
  }
}
