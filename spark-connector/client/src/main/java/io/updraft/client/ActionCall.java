// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.grpc.CallOptions;
import io.grpc.ClientCall;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.internal.GrpcUtil;
import java.io.IOException;
import java.io.InputStream;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;

/** Call of one Flight action or one health check, with its outcome. */
final class ActionCall extends ClientCall.Listener<InputStream> {
  private static final byte[] NOTHING = {};

  /**
   * Outcome of an action.
   *
   * @param status gRPC status of the call
   * @param result Flight's encoded {@code Result}; empty if the action returned none
   */
  record Outcome(Status status, byte[] result) {}

  private final CompletableFuture<Status> end = new CompletableFuture<>();
  private volatile byte[] result = NOTHING;

  private ActionCall() {}

  /**
   * Run an action, waiting at most the connect timeout. If the peer refuses the token and the token
   * file has a new token by then, run the action once more.
   *
   * @throws IllegalArgumentException if the token file cannot be used
   * @throws InterruptedException if the thread was interrupted; the call is then cancelled
   */
  static Outcome run(ChannelPool.Connection connection, ClientOptions options, FlightAction action)
      throws InterruptedException {
    BearerToken token = new BearerToken(options);
    token.renew();
    Outcome outcome = ask(connection, options, token, action);
    boolean refused = outcome.status().getCode() == Status.Code.UNAUTHENTICATED;
    return refused && token.renew() ? ask(connection, options, token, action) : outcome;
  }

  private static Outcome ask(
      ChannelPool.Connection connection,
      ClientOptions options,
      BearerToken token,
      FlightAction action)
      throws InterruptedException {
    Metadata headers = token.headers();
    return ask(connection, options, headers, FlightMethod.DO_ACTION, action);
  }

  /** Run a {@code grpc.health.v1} check of the whole service and return the status of the call. */
  static Status health(ChannelPool.Connection connection, ClientOptions options)
      throws InterruptedException {
    byte[] ofAll = {};
    return ask(connection, options, new Metadata(), FlightMethod.HEALTH_CHECK, ofAll).status();
  }

  private static <T> Outcome ask(
      ChannelPool.Connection connection,
      ClientOptions options,
      Metadata headers,
      MethodDescriptor<T, InputStream> method,
      T request)
      throws InterruptedException {
    CallOptions callOptions =
        CallOptions.DEFAULT.withDeadlineAfter(
            options.connectTimeout().toNanos(), TimeUnit.NANOSECONDS);
    // If a connection was just refused, connect again now instead of waiting for gRPC's backoff.
    connection.channel().resetConnectBackoff();
    ClientCall<T, InputStream> call = connection.channel().newCall(method, callOptions);
    ActionCall listener = new ActionCall();
    call.start(listener, headers);
    try {
      call.request(1);
      call.sendMessage(request);
      call.halfClose();
      // The deadline ends the call in any case, so this cannot block forever.
      Status status = listener.end.get();
      return new Outcome(status, listener.result);
    } catch (ExecutionException e) {
      throw new IllegalStateException(e);
    } finally {
      if (!listener.end.isDone()) {
        call.cancel("the caller stopped waiting for the answer", null);
      }
    }
  }

  @Override
  public void onMessage(InputStream message) {
    try {
      result = message.readAllBytes();
    } catch (IOException e) {
      result = NOTHING;
    } finally {
      GrpcUtil.closeQuietly(message);
    }
  }

  @Override
  public void onClose(Status status, Metadata trailers) {
    end.complete(status);
  }
}
