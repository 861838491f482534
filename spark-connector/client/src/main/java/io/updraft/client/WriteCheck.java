// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.grpc.Status;
import io.updraft.proto.v1.ErrorKind;
import io.updraft.proto.v1.WriteCommand;
import java.util.Optional;

/**
 * Check that a writer would open a file, made before Spark removes the data that the file replaces.
 * The check creates nothing on the writer's side. If several pods share one name, the check asks
 * only one pod, because all of these pods are replicas with the same settings.
 */
public final class WriteCheck {
  /** Name of the action in proto/README.md. */
  static final String ACTION = "updraft.check_write";

  /** Start of the error with which a service rejects an unknown action. */
  private static final String NO_ACTION = "no action";

  private WriteCheck() {}

  /**
   * Reason why the writer would not open the file.
   *
   * @param kind kind of error, which says who caused it
   * @param code name of the gRPC status code
   * @param message message for the user
   * @param temporary true if the writer may answer differently a moment later
   */
  public record Refusal(ErrorKind kind, String code, String message, boolean temporary) {
    private static Refusal of(Failure failure) {
      boolean temporary =
          switch (failure.kind()) {
            // A refusal by TLS has the same kind of error, but its origin is this side, and a retry
            // does not help.
            case ERROR_KIND_POOL_UNAVAILABLE -> failure.origin() != Failure.Origin.CLIENT;
            case ERROR_KIND_DEADLINE, ERROR_KIND_POOL_FULL -> true;
            default -> failure.origin() == Failure.Origin.CONNECTION;
          };
      return new Refusal(failure.kind(), failure.code(), failure.message(), temporary);
    }
  }

  /**
   * Ask once, waiting at most the connect timeout.
   *
   * @return empty if the writer would open the file
   * @throws IllegalArgumentException if the options' TLS files or token file cannot be used
   * @throws InterruptedException if the thread was interrupted; the call is then cancelled
   */
  public static Optional<Refusal> ask(ClientOptions options, WriteCommand command)
      throws InterruptedException {
    ChannelPool.Connection connection = ChannelPool.acquireForQuestion(options);
    try {
      FlightAction action = new FlightAction(ACTION, command.toByteString());
      Status status = ActionCall.run(connection, options, action).status();
      if (status.isOk()) {
        return Optional.empty();
      }
      Failure failure = failure(status, options);
      Optional<Refusal> wrongPeer =
          failure.mayBeOfAnotherListener() ? wrongPeer(failure, options) : Optional.empty();
      Refusal refusal = wrongPeer.orElse(Refusal.of(failure));
      if (refusal.temporary()) {
        boolean full = refusal.kind() == ErrorKind.ERROR_KIND_POOL_FULL;
        connection.recordDeparture(full ? Replicas.Departure.BUSY : Replicas.Departure.UNAVAILABLE);
      }
      return Optional.of(refusal);
    } finally {
      connection.release();
    }
  }

  private static Optional<Refusal> wrongPeer(Failure failure, ClientOptions options)
      throws InterruptedException {
    return Listener.wrongPeer(options)
        .map(told -> new Refusal(ErrorKind.ERROR_KIND_PROTOCOL, failure.code(), told, false));
  }

  private static Failure failure(Status status, ClientOptions options) {
    Status.Code code = status.getCode();
    String text = String.valueOf(status.getDescription());
    boolean unknown = code == Status.Code.INVALID_ARGUMENT && text.startsWith(NO_ACTION);
    if (unknown || code == Status.Code.UNIMPLEMENTED) {
      String message =
          "the service at %s is not a writer, or is a writer of an older release (%s)"
              .formatted(options.endpoint(), text);
      return new Failure(
          ErrorKind.ERROR_KIND_PROTOCOL, code.name(), message, null, null, Failure.Origin.POOL);
    }
    if (code == Status.Code.DEADLINE_EXCEEDED) {
      double seconds = options.connectTimeout().toMillis() / 1000.0;
      return Failure.deadline(
          "the writer at %s did not answer within %s s".formatted(options.endpoint(), seconds));
    }
    Failure failure = Failure.ofStatus(status, options);
    if (code == Status.Code.UNAVAILABLE && failure.origin() == Failure.Origin.CONNECTION) {
      String seen = ConnectFailure.seen(status.getCause(), options.endpoint()).orElse(text);
      return failure.withMessage(
          "cannot reach a writer at %s: %s".formatted(options.endpoint(), seen));
    }
    return failure;
  }
}
