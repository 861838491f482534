// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.grpc.Metadata;
import io.grpc.Status;
import io.updraft.proto.v1.TaskIdentity;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BooleanSupplier;
import java.util.function.LongPredicate;
import java.util.function.Supplier;
import org.apache.arrow.memory.BufferAllocator;

/**
 * What {@link Exchange} and {@link FileExchange} share: the lock and the clock of a {@link
 * CallCore}, and the call that is open. Whoever looks at the core or changes it, the task's thread
 * or gRPC's event loop, holds the lock; the task's thread waits on it. Messages are sent under the
 * lock, which calls nobody back; calls are opened and cancelled outside it.
 */
abstract class CallShell<C extends CallCore> implements AutoCloseable {
  /** How long a close waits for the transport to give sent buffers back. */
  private static final long CLOSE_MILLISECONDS = 500;

  final ClientOptions options;
  final C core;

  /** Whoever looks at the core or changes it holds it. */
  final ReentrantLock lock = new ReentrantLock();

  private final TaskIdentity task;
  private final BufferAllocator allocator;
  private final WireAllocator wire;
  private final Condition changed = lock.newCondition();
  private final LongPredicate recoveryDue;

  /** Only for the task's thread. */
  private final BearerToken token;

  private volatile FlightCall call;

  /** Bytes of the messages that the core wanted sent; only under the lock. */
  private long sentBytes;

  CallShell(ClientOptions options, TaskIdentity task, BufferAllocator allocator, C core) {
    this.options = options;
    this.task = task;
    this.allocator = allocator;
    this.wire = new WireAllocator(allocator);
    this.core = core;
    this.token = new BearerToken(options);
    this.recoveryDue = core::isRecoveryDue;
  }

  /** One of the shell's calls. */
  abstract class ShellCall extends FlightCall {
    ShellCall() {
      super(options, token, task, allocator, core.remainingNanos(System.nanoTime()));
    }

    @Override
    final void onBroken(Failure failure) {
      locked(() -> core.onBroken(this, failure));
    }

    @Override
    final void onClosed(Status status, Metadata trailers) {
      locked(() -> core.onClosed(this, status, trailers, System.nanoTime()));
    }
  }

  /** A call that was not started. */
  abstract FlightCall newCall();

  /** Starts a call that the core has taken on, and tells the core when more may follow. */
  abstract void start(FlightCall next);

  /** What the core wants sent now; null when it has to wait. Only under the lock. */
  abstract CallCore.Step<?> nextToSend();

  /** Starts the first call of a shell; closes the shell when that fails. */
  static <S extends CallShell<?>> S opened(S shell) {
    try {
      shell.startCall();
      return shell;
    } catch (RuntimeException | Error e) {
      shell.close();
      throw e;
    }
  }

  /** Starts a call in place of the one that was lost. */
  final void startCall() {
    if (call != null) {
      call.leave("another call takes its place");
    }
    if (!token.renew()) {
      locked(core::tokenUnchanged);
    }
    FlightCall next = newCall();
    lock.lock();
    try {
      call = next;
      if (!core.begin(next)) {
        return;
      }
    } finally {
      lock.unlock();
    }
    start(next);
  }

  /** The latest call; null before the first. */
  final FlightCall call() {
    return call;
  }

  /** Runs an action under the lock, sends what may be sent after it and wakes the task's thread. */
  final void locked(Runnable action) {
    lock.lock();
    try {
      action.run();
      advance();
    } finally {
      lock.unlock();
    }
  }

  /** The answer to a question to the core. */
  final <T> T read(Supplier<T> question) {
    lock.lock();
    try {
      return question.get();
    } finally {
      lock.unlock();
    }
  }

  /** Sends what may be sent and lets the task's thread look again; only under the lock. */
  final void advance() {
    for (CallCore.Step<?> step = nextToSend(); step != null; step = nextToSend()) {
      send(step);
    }
    changed.signalAll();
  }

  /** Sends a message; only under the lock. */
  void send(CallCore.Step<?> step) {
    sentBytes += call.send(OutgoingMessage.of(step, wire));
    if (step.last()) {
      call.halfClose();
    }
  }

  /** Bytes of what the core wanted sent: batches and what is said about them. */
  final long sentBytes() {
    return read(() -> sentBytes);
  }

  /** Waits until something is found; starts calls in place of those that are lost meanwhile. */
  final void await(BooleanSupplier found) throws InterruptedException {
    while (!await(found, recoveryDue)) {
      startCall();
    }
  }

  /** Waits until something is found; false when the call is over. */
  final boolean awaitInCall(BooleanSupplier found) throws InterruptedException {
    return await(() -> core.isRunning() && found.getAsBoolean(), now -> !core.isRunning());
  }

  private boolean await(BooleanSupplier found, LongPredicate over) throws InterruptedException {
    lock.lockInterruptibly();
    try {
      long waitingSinceNanos = System.nanoTime();
      while (!found.getAsBoolean()) {
        long nowNanos = System.nanoTime();
        if (over.test(nowNanos)) {
          return false;
        }
        long restNanos = core.restNanos(waitingSinceNanos, nowNanos);
        if (restNanos > 0) {
          changed.awaitNanos(restNanos);
        } else {
          core.expire(waitingSinceNanos, System.nanoTime());
        }
      }
      return true;
    } finally {
      lock.unlock();
    }
  }

  /** Waits, at most so long, for something that follows the outcome; only under the lock. */
  final void awaitAfterwards(BooleanSupplier found, long milliseconds) {
    Patience.await(found, milliseconds, changed::awaitNanos);
  }

  /** Starts a call in place of one that is lost, when its time has come. */
  final void recoverIfDue() {
    boolean due;
    lock.lock();
    try {
      due = core.isRecoveryDue(System.nanoTime());
    } finally {
      lock.unlock();
    }
    if (due) {
      startCall();
    }
  }

  /**
   * Releases everything; cancels what has not finished. Afterwards nothing of it is allocated in
   * the task's allocator. Idempotent.
   */
  @Override
  public void close() {
    if (read(core::phase) == Phase.CLOSED) {
      return;
    }
    locked(core::close);
    if (call != null) {
      call.close("the task closed it");
    }
    wire.close();
    wire.awaitEmpty(CLOSE_MILLISECONDS);
  }
}
