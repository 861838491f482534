// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import com.google.protobuf.ByteString;
import com.google.protobuf.MessageLite;
import io.grpc.CallOptions;
import io.grpc.ClientCall;
import io.grpc.ConnectivityState;
import io.grpc.Metadata;
import io.grpc.Status;
import io.updraft.proto.v1.TaskIdentity;
import java.io.InputStream;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.ReentrantLock;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.OutOfMemoryException;

/**
 * DoExchange call, with its connection, its headers, and the gate that stops reading. Subclasses
 * interpret the messages. The {@code on...} methods run on gRPC's event loop.
 */
abstract class FlightCall implements CallCore.Call {
  /**
   * How often to check whether this side has to send a keepalive. Services end a call if the client
   * is silent for too long.
   */
  private static final long LOOK_SECONDS = 1;

  /** Stage of a call. {@link FlightCall#connected()} says whether the call has reached the wire. */
  private enum Stage {
    /** Nothing is sent yet. */
    PREPARED,
    /** The call was passed to gRPC with its first message. */
    STARTED,
    /** Messages may follow. */
    OPEN,
    /** This side has announced that no message follows. */
    HALF_CLOSED,
    /** The peer or the connection has ended the call. */
    CLOSED,
    /** This side has ended the call. */
    CANCELLED,
    /** The call is over and has released its connection. */
    RELEASED;

    /** Event that advances the stage. */
    enum Event {
      STARTED,
      OPENED,
      HALF_CLOSED,
      CLOSED,
      CANCELLED,
      RELEASED
    }

    /** Return the next stage; an event that comes too early or too late changes nothing. */
    Stage after(Event event) {
      return switch (event) {
        case STARTED -> this == PREPARED ? STARTED : this;
        case OPENED -> this == STARTED ? OPEN : this;
        case HALF_CLOSED -> this == OPEN ? HALF_CLOSED : this;
        case CLOSED -> isOver() ? this : CLOSED;
        case CANCELLED -> isOver() ? this : CANCELLED;
        case RELEASED -> isOver() ? RELEASED : this;
      };
    }

    boolean isOver() {
      return this == CLOSED || this == CANCELLED || this == RELEASED;
    }
  }

  private final ClientOptions options;
  private final BearerToken token;
  private final BufferAllocator allocator;
  private final long startedNanos = System.nanoTime();
  private final ChannelPool.Connection connection;
  private final ClientCall<OutgoingMessage, InputStream> call;
  private final ReadGate gate = new ReadGate();

  /** Held while sending, because gRPC accepts messages from one thread at a time. */
  private final ReentrantLock sending = new ReentrantLock();

  private final AtomicReference<Stage> stage = new AtomicReference<>(Stage.PREPARED);
  private volatile ScheduledFuture<?> keepAlives;
  private long lastSentNanos;
  private volatile boolean connected;

  /**
   * Prepare a call.
   *
   * @param token the token read for this call
   * @param task the task that makes the call
   * @param remainingNanos time until the call's deadline; zero if there is none
   */
  FlightCall(
      ClientOptions options,
      BearerToken token,
      TaskIdentity task,
      BufferAllocator allocator,
      long remainingNanos) {
    this.options = options;
    this.token = token;
    this.allocator = allocator;
    this.connection = ChannelPool.acquire(options, name(task));
    CallOptions callOptions = CallOptions.DEFAULT;
    if (remainingNanos > 0) {
      callOptions = callOptions.withDeadlineAfter(remainingNanos, TimeUnit.NANOSECONDS);
    }
    this.call = connection.channel().newCall(FlightMethod.DO_EXCHANGE, callOptions);
  }

  /** Return the name by which pools distinguish tasks; null if there is no task. */
  private static String name(TaskIdentity task) {
    return task.getOwner().getApplicationId().isEmpty()
        ? null
        : task.getOwner().getApplicationId()
            + "/"
            + task.getStageId()
            + "/"
            + task.getTaskAttemptId();
  }

  /**
   * Handle readiness: the call has reached the wire for the first time, or its send queue has room
   * again.
   */
  abstract void onReady(boolean first);

  /**
   * Handle a message. The caller closes the message afterwards.
   *
   * @return whether the peer may send one more right away
   */
  abstract boolean onMessage(IncomingMessage message) throws MalformedReplyException;

  /** Handle a call that became unusable. Called at most once; no message follows. */
  abstract void onBroken(Failure failure);

  /** Handle the end of the call. No other event follows. */
  abstract void onClosed(Status status, Metadata trailers);

  @Override
  public final long startedNanos() {
    return startedNanos;
  }

  @Override
  public final boolean connected() {
    // gRPC does not call onReady while the call's send queue is full, for example while the call
    // waits for a worker.
    if (!connected && connection.channel().getState(false) == ConnectivityState.READY) {
      reached();
    }
    return connected;
  }

  private void reached() {
    connected = true;
    connection.connected();
    ChannelPool.answered(options);
  }

  @Override
  public final String explanation() {
    return connection.explanation();
  }

  @Override
  public final boolean hasAlternatives() {
    return connection.hasAlternatives();
  }

  @Override
  public final Recovery.Reachability reach() {
    return connected ? Recovery.Reachability.ANSWERED : connection.reach();
  }

  /** Return whether the call has ended, on this side or the other. */
  final boolean ended() {
    return stage.get().isOver();
  }

  /** Apply an event and return the stage before it. */
  private Stage move(Stage.Event event) {
    return stage.getAndUpdate(before -> before.after(event));
  }

  /** Open the call, send its first message and return the bytes sent. */
  final long start(ByteString command, byte[] schemaHeader, int replies) {
    connection.wake();
    synchronized (this) {
      if (move(Stage.Event.STARTED) != Stage.PREPARED) {
        return 0;
      }
      keepAlives =
          EventLoops.TIMER.scheduleWithFixedDelay(
              this::keepAliveIfQuiet, LOOK_SECONDS, LOOK_SECONDS, TimeUnit.SECONDS);
      call.start(new Listener(), token.headers());
    }
    call.request(replies);
    long bytes = send(OutgoingMessage.opening(command, schemaHeader));
    move(Stage.Event.OPENED);
    return bytes;
  }

  /** Send a message unless the call has ended, and return the bytes sent. */
  final long send(OutgoingMessage message) {
    if (ended()) {
      return 0;
    }
    sending.lock();
    try {
      lastSentNanos = System.nanoTime();
      call.sendMessage(message);
    } catch (IllegalStateException e) {
      ignoreIfCancelled(e);
    } finally {
      sending.unlock();
    }
    return message.sizeBytes();
  }

  /** Announce that no message follows. */
  final void halfClose() {
    sending.lock();
    try {
      if (move(Stage.Event.HALF_CLOSED) == Stage.OPEN) {
        call.halfClose();
      }
    } catch (IllegalStateException e) {
      ignoreIfCancelled(e);
    } finally {
      sending.unlock();
    }
  }

  /** Release what the call holds. No message is being read, and none will be read later. */
  void onReleased() {}

  /** Return the message to send as a keepalive. */
  abstract MessageLite keepAlive();

  /**
   * Send a keepalive if nothing was sent for a while. Never waits: while the task is sending or the
   * transport still has unsent messages, no keepalive is needed.
   */
  private void keepAliveIfQuiet() {
    if (stage.get() != Stage.OPEN || !sending.tryLock()) {
      return;
    }
    try {
      boolean quiet = System.nanoTime() - lastSentNanos >= options.keepAlive().toNanos();
      if (quiet && isReady()) {
        send(OutgoingMessage.of(keepAlive()));
      }
    } catch (RuntimeException | Error e) {
      // The broken call reports its failure to the waiting task. The exception must not reach the
      // event loop, which also serves other calls. Catch Error too, because Netty throws an Error
      // if it cannot allocate memory for a message.
      keepAlives.cancel(false);
    } finally {
      sending.unlock();
    }
  }

  /**
   * Rethrow the exception unless the call has ended. gRPC refuses to send on a call that another
   * thread has just cancelled.
   */
  private void ignoreIfCancelled(IllegalStateException e) {
    if (!ended()) {
      throw e;
    }
  }

  /**
   * Return whether the transport accepts another message without queueing it. If not, {@link
   * #onReady} is called when it accepts messages again.
   */
  final boolean isReady() {
    // gRPC's isReady must not be called before the call is started.
    return stage.get() == Stage.OPEN && call.isReady();
  }

  /** Allow the peer to send more messages; callable from any thread. */
  @Override
  public final void request(int messages) {
    call.request(messages);
  }

  /** Cancel the call unless it has ended; callable from any thread. */
  final void cancel(String reason) {
    Stage before;
    synchronized (this) {
      // gRPC does not accept a cancel while it starts a call.
      before = move(Stage.Event.CANCELLED);
    }
    if (!before.isOver()) {
      call.cancel(reason, null);
    }
  }

  /**
   * Return why this call leaves its pod. The reason for files allows all later calls of the task to
   * use another pod. This is safe, because files of one task do not wait for each other.
   */
  Replicas.Departure departure() {
    return Replicas.Departure.UNAVAILABLE;
  }

  /** Close a call that is being replaced. */
  final void leave(String reason) {
    connection.recordDeparture(departure());
    if (stage.get() == Stage.CLOSED) {
      // gRPC does not reset a stream that is already half-closed. Without this cancel, gRPC would
      // keep messages that the peer will never read until the connection closes.
      call.cancel(reason, null);
    }
    close(reason);
  }

  /**
   * Cancel the call unless it has ended, and wait until no reply is being read any more.
   * Idempotent.
   */
  final void close(String reason) {
    if (keepAlives != null) {
      keepAlives.cancel(false);
    }
    cancel(reason);
    gate.close();
    if (move(Stage.Event.RELEASED) != Stage.RELEASED) {
      connection.release();
      onReleased();
    }
  }

  private final class Listener extends ClientCall.Listener<InputStream> {
    @Override
    public void onReady() {
      boolean first = !connected;
      if (first) {
        reached();
      }
      FlightCall.this.onReady(first);
    }

    @Override
    public void onMessage(InputStream message) {
      if (!connected) {
        reached();
      }
      if (!gate.enter()) {
        return;
      }
      try {
        read(message);
      } catch (MalformedReplyException e) {
        broken(Failure.malformed(e.getMessage() + " (" + options.endpoint() + ")", e));
      } catch (OutOfMemoryException e) {
        broken(Failure.malformed("no memory for a reply: " + e.getMessage(), e));
      } finally {
        gate.exit();
      }
    }

    private void read(InputStream stream) throws MalformedReplyException {
      try (IncomingMessage message = FlightDataReader.read(stream, allocator)) {
        if (FlightCall.this.onMessage(message)) {
          call.request(1);
        }
      }
    }

    private void broken(Failure failure) {
      gate.shut();
      onBroken(failure);
      cancel(failure.message());
    }

    @Override
    public void onClose(Status status, Metadata trailers) {
      move(Stage.Event.CLOSED);
      connection.ended();
      onClosed(status, trailers);
    }
  }
}
