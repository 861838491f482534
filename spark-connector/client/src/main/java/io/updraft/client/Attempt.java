// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import com.google.protobuf.ByteString;
import io.grpc.CallOptions;
import io.grpc.ClientCall;
import io.grpc.ConnectivityState;
import io.grpc.Metadata;
import io.grpc.Status;
import java.io.InputStream;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.OutOfMemoryException;

/**
 * One DoExchange call. Its task thread sends; gRPC's event loop reads replies, puts them in order
 * with {@link ReplyProtocol} and tells the {@link Owner}.
 */
final class Attempt {
  /** Whom an attempt tells, on gRPC's event loop, without locks held. */
  interface Owner {
    /** The call has reached the wire, or takes more after it was full: other waits apply now. */
    void onReady();

    /** A message arrived in order; a batch in the event is the owner's from now on. */
    void onEvent(Attempt attempt, ReplyEvent event, int sizeBytes) throws MalformedReplyException;

    /** The call is unusable; comes at most once, and nothing follows. */
    void onBroken(Attempt attempt, Failure failure);

    /** The call ended with a status; nothing follows. */
    void onClosed(Attempt attempt, Status status, Metadata trailers);
  }

  private static final Metadata.Key<String> AUTHORIZATION =
      Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);
  private static final Metadata.Key<String> TENANT =
      Metadata.Key.of("x-updraft-tenant", Metadata.ASCII_STRING_MARSHALLER);
  private static final Metadata.Key<String> TRACE_PARENT =
      Metadata.Key.of("traceparent", Metadata.ASCII_STRING_MARSHALLER);

  private final ClientOptions options;
  private final BufferAllocator allocator;
  private final WireAllocator wire;
  private final Owner owner;
  private final long base;
  private final long startedNanos = System.nanoTime();
  private final ChannelPool.SharedChannel channel;
  private final ClientCall<OutgoingMessage, InputStream> call;
  private final ReplyProtocol protocol = new ReplyProtocol();
  private final ReadGate gate = new ReadGate();

  private long sentRows;
  private boolean released;
  private volatile long sentBatches;
  private volatile boolean connected;
  private volatile boolean cancelled;
  private volatile boolean closed;

  /**
   * Prepares a call.
   *
   * @param base the exchange's number of the batch before this call's first
   * @param remainingNanos until the call's deadline; zero for none
   */
  Attempt(
      ClientOptions options,
      BufferAllocator allocator,
      WireAllocator wire,
      Owner owner,
      long base,
      long remainingNanos) {
    this.options = options;
    this.allocator = allocator;
    this.wire = wire;
    this.owner = owner;
    this.base = base;
    this.channel = ChannelPool.acquire(options);
    CallOptions callOptions = CallOptions.DEFAULT;
    if (remainingNanos > 0) {
      callOptions = callOptions.withDeadlineAfter(remainingNanos, TimeUnit.NANOSECONDS);
    }
    this.call = channel.channel().newCall(FlightMethod.DO_EXCHANGE, callOptions);
  }

  long base() {
    return base;
  }

  long startedNanos() {
    return startedNanos;
  }

  /** Whether the call has reached the wire. */
  boolean connected() {
    // onReady stays away while more is queued than gRPC wants, as for a call that waits for a
    // worker.
    if (!connected && channel.channel().getState(false) == ConnectivityState.READY) {
      connected = true;
    }
    return connected;
  }

  ReplyProtocol.State state() {
    return protocol.state();
  }

  long consumed() {
    return protocol.consumed();
  }

  /** Opens the call and sends its first message. @return bytes sent */
  long start(ByteString command, byte[] schemaHeader, int replies) {
    // A connection that was refused a moment ago is tried again now, not after gRPC's own pause.
    channel.channel().resetConnectBackoff();
    synchronized (this) {
      if (cancelled) {
        return 0;
      }
      call.start(new Listener(), headers());
    }
    call.request(replies);
    return send(OutgoingMessage.opening(command, schemaHeader));
  }

  private Metadata headers() {
    Metadata headers = new Metadata();
    options.token().ifPresent(token -> headers.put(AUTHORIZATION, "Bearer " + token));
    options.tenant().ifPresent(tenant -> headers.put(TENANT, tenant));
    options.traceParent().ifPresent(parent -> headers.put(TRACE_PARENT, parent));
    return headers;
  }

  /** Sends the next batch. @return bytes sent */
  long send(RequestBatch batch) {
    long sequence = sentBatches + 1;
    sentRows += batch.rows();
    // Before it is sent: the pool's credit for it must not come first.
    sentBatches = sequence;
    return send(OutgoingMessage.batch(batch, sequence, wire));
  }

  /** Says that every batch was sent. @return bytes sent */
  long finish() {
    long bytes = send(OutgoingMessage.finish(sentBatches, sentRows));
    if (!cancelled) {
      try {
        call.halfClose();
      } catch (IllegalStateException e) {
        ignoreIfCancelled(e);
      }
    }
    return bytes;
  }

  private long send(OutgoingMessage message) {
    if (cancelled || closed) {
      return 0;
    }
    try {
      call.sendMessage(message);
    } catch (IllegalStateException e) {
      ignoreIfCancelled(e);
    }
    return message.sizeBytes();
  }

  /** gRPC refuses to send on a call that another thread has just cancelled. */
  private void ignoreIfCancelled(IllegalStateException e) {
    if (!cancelled) {
      throw e;
    }
  }

  /** Sends a part of a content. @return bytes sent */
  long send(ByteString sha256, long offset, byte[] data) {
    return send(OutgoingMessage.content(sha256, offset, data));
  }

  /** Whether the transport takes more without queueing it; {@link Owner#onReady} says when. */
  boolean isReady() {
    return call.isReady();
  }

  /** Lets the pool send more messages; from any thread. */
  void request(int messages) {
    call.request(messages);
  }

  /** Cancels the call unless it has ended; from any thread. */
  void cancel(String reason) {
    synchronized (this) {
      if (cancelled) {
        return;
      }
      cancelled = true;
    }
    if (!closed) {
      call.cancel(reason, null);
    }
  }

  /** Cancels what has not ended and returns when no reply is being read any more. Idempotent. */
  void close(String reason) {
    cancel(reason);
    gate.close();
    synchronized (this) {
      if (released) {
        return;
      }
      released = true;
    }
    channel.release();
  }

  private final class Listener extends ClientCall.Listener<InputStream> {
    @Override
    public void onReady() {
      // Only contents wait for it again: batches have a window of their own.
      boolean awaited = !connected || protocol.state() == ReplyProtocol.State.INIT;
      connected = true;
      if (awaited) {
        owner.onReady();
      }
    }

    @Override
    public void onMessage(InputStream message) {
      connected = true;
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
        ReplyEvent event = protocol.accept(message, sentBatches);
        owner.onEvent(Attempt.this, event, message.sizeBytes());
        if (!(event instanceof ReplyEvent.Batch || event instanceof ReplyEvent.Logged)) {
          call.request(1);
        }
      }
    }

    private void broken(Failure failure) {
      gate.shut();
      owner.onBroken(Attempt.this, failure);
      cancel(failure.message());
    }

    @Override
    public void onClose(Status status, Metadata trailers) {
      closed = true;
      owner.onClosed(Attempt.this, status, trailers);
    }
  }
}
