// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.ConnectException;
import java.net.NoRouteToHostException;
import java.net.SocketTimeoutException;
import java.net.UnknownHostException;
import java.util.Objects;
import java.util.Optional;
import java.util.stream.Stream;

/** Description of a failed attempt to connect to an endpoint. */
public final class ConnectFailure {
  private ConnectFailure() {}

  /** Describe a failed attempt to connect to an endpoint. */
  public static String of(IOException problem, Endpoint endpoint) {
    return seen(problem, endpoint).orElse(String.valueOf(problem.getMessage()));
  }

  /**
   * Describe the cause of a failed call; empty if a connection was made or the cause is unknown.
   */
  static Optional<String> seen(Throwable cause, Endpoint endpoint) {
    return Stream.iterate(cause, Objects::nonNull, Throwable::getCause)
        .flatMap(e -> told(e, endpoint).stream())
        .findFirst();
  }

  private static Optional<String> told(Throwable e, Endpoint endpoint) {
    String address = endpoint.address();
    String message = String.valueOf(e.getMessage());
    if (e instanceof UnknownHostException) {
      return Optional.of("name not found: %s has no address".formatted(endpoint.host()));
    }
    if (e instanceof NoRouteToHostException || message.contains("Network is unreachable")) {
      return Optional.of("no route to %s".formatted(address));
    }
    // Check this before ConnectException, because Netty's timeout is a ConnectException, too.
    if (e instanceof SocketTimeoutException || message.startsWith("connection timed out")) {
      return Optional.of("no answer from %s".formatted(address));
    }
    if (e instanceof FileNotFoundException || message.contains("No such file or directory")) {
      return Optional.of("there is no socket %s".formatted(address));
    }
    if (message.contains("Permission denied")) {
      return Optional.of("this user may not connect to %s".formatted(address));
    }
    if (e instanceof ConnectException || message.contains("Connection refused")) {
      return Optional.of("connection refused: nothing listens at %s".formatted(address));
    }
    return Optional.empty();
  }
}
