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
 * One DoExchange call: its connection, its headers, and the gate behind which nothing is read any
 * more. What the messages mean, the subclasses say. The hooks run on gRPC's event loop.
 */
abstract class FlightCall implements CallCore.Call {
  /** How often a call checks whether it was silent for too long: services end silent calls. */
  private static final long LOOK_SECONDS = 1;

  /** How far a call has come; whether it has reached the wire is another matter. */
  private enum Stage {
    /** Nothing was sent yet. */
    PREPARED,
    /** gRPC has the call; its first message is on its way. */
    STARTED,
    /** Messages may follow. */
    OPEN,
    /** This side has said that no message follows. */
    HALF_CLOSED,
    /** The peer, or the connection, has ended it. */
    CLOSED,
    /** This side has ended it. */
    CANCELLED,
    /** It is over, and its connection was given back. */
    RELEASED;

    /** What moves a call on. */
    enum Event {
      STARTED,
      OPENED,
      HALF_CLOSED,
      CLOSED,
      CANCELLED,
      RELEASED
    }

    /** The stage that follows; an event that comes too early or too late changes nothing. */
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

  /** Held while sending: gRPC takes messages from one thread at a time. */
  private final ReentrantLock sending = new ReentrantLock();

  private final AtomicReference<Stage> stage = new AtomicReference<>(Stage.PREPARED);
  private volatile ScheduledFuture<?> keepAlives;
  private long lastSentNanos;
  private volatile boolean connected;

  /**
   * Prepares a call.
   *
   * @param token looked up for this call
   * @param task whose call it is
   * @param remainingNanos until the call's deadline; zero for none
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

  /** The task's name, by which pools tell tasks apart; null without one. */
  private static String name(TaskIdentity task) {
    return task.getOwner().getApplicationId().isEmpty()
        ? null
        : task.getOwner().getApplicationId()
            + "/"
            + task.getStageId()
            + "/"
            + task.getTaskAttemptId();
  }

  /** The call has reached the wire for the first time, or takes more after it was full. */
  abstract void onReady(boolean first);

  /**
   * A message arrived; it is closed afterwards.
   *
   * @return whether the peer may send one more at once
   */
  abstract boolean onMessage(IncomingMessage message) throws MalformedReplyException;

  /** The call is unusable; comes at most once, and no message follows. */
  abstract void onBroken(Failure failure);

  /** The call ended with a status; nothing follows. */
  abstract void onClosed(Status status, Metadata trailers);

  @Override
  public final long startedNanos() {
    return startedNanos;
  }

  @Override
  public final boolean connected() {
    // gRPC does not call onReady while its queue is full, as in a call that waits for a worker.
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
  public final Reach reach() {
    return connected ? Reach.ANSWERED : connection.reach();
  }

  /** Whether the call has ended, on this side or the other. */
  final boolean ended() {
    return stage.get().isOver();
  }

  /** Takes an event; returns the stage before it. */
  private Stage move(Stage.Event event) {
    return stage.getAndUpdate(before -> before.after(event));
  }

  /** Opens the call and sends its first message. @return bytes sent */
  final long start(ByteString command, byte[] schemaHeader, int replies) {
    connection.wake();
    synchronized (this) {
      if (move(Stage.Event.STARTED) != Stage.PREPARED) {
        return 0;
      }
      keepAlives =
          EventLoops.TIMER.scheduleWithFixedDelay(
              this::keepAliveIfQuiet, LOOK_SECONDS, LOOK_SECONDS, TimeUnit.SECONDS);
      call.start(new Listener(), CallHeaders.of(options, token));
    }
    call.request(replies);
    long bytes = send(OutgoingMessage.opening(command, schemaHeader));
    move(Stage.Event.OPENED);
    return bytes;
  }

  /** Sends a message unless the call has ended. @return bytes sent */
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

  /** Says that no message follows. */
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

  /** No message is being read any more, and none will be. */
  void onReleased() {}

  /** What this call says when it has nothing else to say. */
  abstract MessageLite keepAlive();

  /**
   * Says that this side is still there, when nothing was sent for a while. Never waits: where the
   * task is sending, or the transport has not taken what was sent, no keepalive is needed.
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
      // The call is broken, and says so to whoever waits for it. The event loop serves others: it
      // must not see what is an Error of Netty's when there is no memory for one message.
      keepAlives.cancel(false);
    } finally {
      sending.unlock();
    }
  }

  /** gRPC refuses to send on a call that another thread has just cancelled. */
  private void ignoreIfCancelled(IllegalStateException e) {
    if (!ended()) {
      throw e;
    }
  }

  /** Whether the transport takes more without queueing it; {@link #onReady} says when. */
  final boolean isReady() {
    // gRPC must not be asked before the call is started.
    return stage.get() == Stage.OPEN && call.isReady();
  }

  /** From any thread. */
  @Override
  public final void request(int messages) {
    call.request(messages);
  }

  /** Cancels the call unless it has ended; from any thread. */
  final void cancel(String reason) {
    Stage before;
    synchronized (this) {
      // gRPC takes no cancel while it starts a call.
      before = move(Stage.Event.CANCELLED);
    }
    if (!before.isOver()) {
      call.cancel(reason, null);
    }
  }

  /** Closes a call that another one replaces, on another pod where there are several. */
  final void leave(String reason) {
    connection.avoid();
    if (stage.get() == Stage.CLOSED) {
      // gRPC resets no stream whose own end is on its way: what a peer that has ended the call
      // will never read would be held as long as the connection lasts.
      call.cancel(reason, null);
    }
    close(reason);
  }

  /** Cancels what has not ended and returns when no reply is being read any more. Idempotent. */
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
      onClosed(status, trailers);
    }
  }
}
