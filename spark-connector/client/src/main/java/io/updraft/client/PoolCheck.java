// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import com.google.protobuf.ByteString;
import com.google.protobuf.CodedInputStream;
import io.grpc.Status;
import io.netty.handler.ssl.SslHandshakeTimeoutException;
import io.updraft.proto.v1.ErrorKind;
import io.updraft.proto.v1.PoolStatus;
import java.io.IOException;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.stream.Stream;

/**
 * Asks a pool whether it takes this client at all, before there are tasks: its token, and the
 * versions that both sides must share. Of several pods behind one name one is asked: they are
 * replicas, started alike.
 */
public final class PoolCheck {
  private static final int BODY_FIELD_TAG = 1 << 3 | 2;

  private PoolCheck() {}

  /**
   * Why no exchange with the pool can succeed.
   *
   * @param kind {@code ERROR_KIND_UNAUTHENTICATED}, {@code ERROR_KIND_VERSION}, {@code
   *     ERROR_KIND_FUNCTION_REFUSED} for a function that nobody has signed, or {@code
   *     ERROR_KIND_POOL_UNAVAILABLE} for what TLS does not accept
   * @param message for the user
   */
  public record Refusal(ErrorKind kind, String message) {}

  /**
   * What a pool has answered.
   *
   * @param refusal why it takes no call of this client
   * @param silence that no connection could be made or nothing came back in time, for the user;
   *     empty if something did
   * @param status what it is; empty if that is not known: it may be restarting or full, and tasks
   *     find out
   */
  public record Answer(
      Optional<Refusal> refusal, Optional<String> silence, Optional<PoolStatus> status) {
    private static final Answer UNKNOWN =
        new Answer(Optional.empty(), Optional.empty(), Optional.empty());

    /** Whether the pool takes this client's calls. */
    public boolean isAccepted() {
      return status.isPresent();
    }

    /**
     * Why the pool cannot run a session's function.
     *
     * @param pythonVersion the one that pickled the function
     * @param sparkVersion the session's
     */
    public Optional<Refusal> refusalOf(String pythonVersion, String sparkVersion) {
      return refusal.or(() -> status.flatMap(pool -> mismatch(pool, pythonVersion, sparkVersion)));
    }

    /** Why the pool cannot run the functions of a session that does not sign them. */
    public Optional<Refusal> refusalOfUnsigned() {
      String message = "the pool runs only functions that their driver has signed";
      return status
          .filter(PoolStatus::getSignaturesRequired)
          .map(pool -> new Refusal(ErrorKind.ERROR_KIND_FUNCTION_REFUSED, message));
    }
  }

  /**
   * Asks once and waits at most the connect timeout.
   *
   * @throws IllegalArgumentException if the options' TLS files or token file cannot be used
   * @throws InterruptedException if the thread was interrupted; the call is then cancelled
   */
  public static Answer ask(ClientOptions options) throws InterruptedException {
    ChannelPool.Connection connection = ChannelPool.acquireForQuestion(options);
    try {
      FlightAction action = new FlightAction(Peer.POOL.statusAction(), ByteString.EMPTY);
      ActionCall.Outcome outcome = ActionCall.run(connection, options, action);
      return outcome.status().isOk() ? accepted(outcome.result()) : refused(outcome, options);
    } finally {
      connection.release();
    }
  }

  private static Answer accepted(byte[] result) {
    try {
      CodedInputStream input = CodedInputStream.newInstance(result);
      if (input.readTag() != BODY_FIELD_TAG) {
        return Answer.UNKNOWN;
      }
      PoolStatus status = PoolStatus.parseFrom(input.readBytes());
      return new Answer(Optional.empty(), Optional.empty(), Optional.of(status));
    } catch (IOException e) {
      // Whatever it is that listens there, tasks get its own words.
      return Answer.UNKNOWN;
    }
  }

  private static Answer refused(ActionCall.Outcome outcome, ClientOptions options)
      throws InterruptedException {
    Optional<String> silence = silenceOf(outcome.status(), options);
    if (silence.isPresent()) {
      return new Answer(Optional.empty(), silence, Optional.empty());
    }
    Failure failure = Failure.ofStatus(outcome.status(), options);
    if (outcome.status().getCode() == Status.Code.UNAUTHENTICATED) {
      return refused(failure.kind(), failure.message());
    }
    if (failure.mayBeOfAnotherListener()) {
      Optional<String> mistaken = Listener.mistaken(options);
      if (mistaken.isPresent()) {
        return refused(ErrorKind.ERROR_KIND_POOL_UNAVAILABLE, mistaken.get());
      }
    }
    boolean refusedByTls =
        failure.kind() == ErrorKind.ERROR_KIND_POOL_UNAVAILABLE
            && failure.origin() == Failure.Origin.CLIENT;
    return refusedByTls ? refused(failure.kind(), failure.message()) : Answer.UNKNOWN;
  }

  private static Answer refused(ErrorKind kind, String message) {
    return new Answer(Optional.of(new Refusal(kind, message)), Optional.empty(), Optional.empty());
  }

  /** Netty ends a TLS handshake by a timeout of its own, which may come before ours. */
  private static Optional<String> silenceOf(Status status, ClientOptions options) {
    String told = "nothing that listens at %s answered".formatted(options.endpoint());
    if (status.getCode() == Status.Code.DEADLINE_EXCEEDED) {
      double seconds = options.connectTimeout().toMillis() / 1000.0;
      return Optional.of("%s within %s s".formatted(told, seconds));
    }
    return Stream.iterate(status.getCause(), Objects::nonNull, Throwable::getCause)
        .filter(SslHandshakeTimeoutException.class::isInstance)
        .findFirst()
        .map(timeout -> told + ": " + timeout.getMessage())
        .or(() -> Unreached.seen(status.getCause(), options.endpoint()));
  }

  private static Optional<Refusal> mismatch(
      PoolStatus pool, String pythonVersion, String sparkVersion) {
    if (pool.getProtocolVersion() != Exchange.PROTOCOL_VERSION) {
      return version(
          "the pool speaks version %d of the protocol, this connector version %d"
              .formatted(pool.getProtocolVersion(), Exchange.PROTOCOL_VERSION));
    }
    if (!pool.getSessionFunctionsAllowed()) {
      // It says so itself, and how to change that.
      return Optional.empty();
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
    return Optional.of(new Refusal(ErrorKind.ERROR_KIND_VERSION, message));
  }

  private static List<String> minor(String version) {
    return Arrays.stream(version.split("\\.")).limit(2).toList();
  }
}
