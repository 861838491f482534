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
 * Shell shared by {@link Exchange} and {@link FileExchange}: the lock and the clock of a {@link
 * CallCore}, and the open call. The task's thread and gRPC's event loop hold the lock while they
 * read or change the core. The task's thread also waits on a condition of the lock. Messages are
 * sent under the lock, which is safe because sending invokes no callback. Calls are opened and
 * cancelled outside the lock.
 */
abstract class CallShell<C extends CallCore> implements AutoCloseable {
  /** Longest time that a close waits for the transport to release sent buffers. */
  private static final long CLOSE_MILLISECONDS = 500;

  final ClientOptions options;
  final C core;

  /** Lock to hold while reading or changing the core. */
  final ReentrantLock lock = new ReentrantLock();

  private final TaskIdentity task;

  /** Allocates the replies. */
  final BufferAllocator allocator;

  private final WireAllocator wire;
  private final Condition changed = lock.newCondition();
  private final LongPredicate recoveryDue;

  /** Used only by the task's thread. */
  private final BearerToken token;

  /** Called after each message and after the end of a call, on gRPC's event loop. */
  volatile Runnable listener = () -> {};

  private volatile FlightCall call;

  /** Bytes of the messages that the core returned for sending. Guarded by the lock. */
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

  /** Call of this shell. */
  abstract class ShellCall extends FlightCall {
    /**
     * Prepare a call to the pod that serves this task. If the task has no name, prepare a call to
     * any pod.
     */
    ShellCall(TaskIdentity stay) {
      super(options, token, stay, allocator, core.remainingNanos(System.nanoTime()));
    }

    @Override
    final void onBroken(Failure failure) {
      locked(() -> core.onBroken(this, failure));
    }

    @Override
    final void onClosed(Status status, Metadata trailers) {
      locked(() -> core.onClosed(this, status, trailers, System.nanoTime()));
      listener.run();
    }
  }

  /** Return the task that makes the calls. */
  final TaskIdentity task() {
    return task;
  }

  /** Create a call without starting it. */
  abstract FlightCall newCall();

  /** Start a call that the core has accepted, and notify the core when more messages may follow. */
  abstract void start(FlightCall next);

  /** Return the next message of the core; null if no message may be sent now. Requires the lock. */
  abstract CallCore.Step<?> nextToSend();

  /** Start the first call of a shell; close the shell if that fails. */
  static <S extends CallShell<?>> S opened(S shell) {
    try {
      shell.startCall();
      return shell;
    } catch (RuntimeException | Error e) {
      shell.close();
      throw e;
    }
  }

  /** Start a call that replaces the lost call; before the first call, start the first. */
  final void startCall() {
    if (call != null) {
      call.leave("replaced by a new call");
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

  /** Return the latest call; null before the first. */
  final FlightCall call() {
    return call;
  }

  /**
   * Run an action under the lock, then send every message that is due and wake the task's thread.
   */
  final void locked(Runnable action) {
    lock.lock();
    try {
      action.run();
      advance();
    } finally {
      lock.unlock();
    }
  }

  /** Read a value from the core under the lock. */
  final <T> T read(Supplier<T> question) {
    lock.lock();
    try {
      return question.get();
    } finally {
      lock.unlock();
    }
  }

  /** Send every message that is due and wake the task's thread. Requires the lock. */
  final void advance() {
    for (CallCore.Step<?> step = nextToSend(); step != null; step = nextToSend()) {
      send(step);
    }
    changed.signalAll();
  }

  /** Return the message for a step of the core. Requires the lock. */
  OutgoingMessage message(CallCore.Step<?> step) {
    return OutgoingMessage.of(step, wire);
  }

  /** Send a message. Requires the lock. */
  void send(CallCore.Step<?> step) {
    sentBytes += call.send(message(step));
    if (step.last()) {
      call.halfClose();
    }
  }

  /**
   * Return the bytes of the messages that the core returned for sending: batches and their
   * metadata.
   */
  final long sentBytes() {
    return read(() -> sentBytes);
  }

  /** Wait until the condition holds, replacing calls that are lost meanwhile. */
  final void await(BooleanSupplier found) throws InterruptedException {
    while (!await(found, recoveryDue)) {
      startCall();
    }
  }

  /** Wait until the condition holds; return false if the call ends first. */
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

  /** Wait at most this long for a condition after the outcome is known. Requires the lock. */
  final void awaitAfterwards(BooleanSupplier found, long milliseconds) {
    BoundedWait.await(found, milliseconds, changed::awaitNanos);
  }

  /** Replace a lost call if its backoff is over. */
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
   * Cancel the call if it has not finished, and release everything. Afterwards the task's allocator
   * holds no memory of this exchange or file. Idempotent.
   */
  @Override
  public void close() {
    if (read(core::phase) == CallCore.Phase.CLOSED) {
      return;
    }
    locked(core::close);
    if (call != null) {
      call.close("closed by the task");
    }
    wire.close();
    wire.awaitEmpty(CLOSE_MILLISECONDS);
  }
}
