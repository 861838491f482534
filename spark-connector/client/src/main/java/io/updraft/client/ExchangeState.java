// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import com.google.protobuf.ByteString;
import io.grpc.Metadata;
import io.grpc.Status;
import io.updraft.proto.v1.Report;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Supplier;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * {@link ExchangeCore} under one lock, between the task thread and gRPC's event loop, and the wait
 * of the task thread. Nothing of gRPC that calls back is called under the lock.
 */
final class ExchangeState implements Attempt.Owner {
  private final ReentrantLock lock = new ReentrantLock();
  private final Condition changed = lock.newCondition();
  private final ExchangeCore core;

  ExchangeState(ClientOptions options, Replay replay) {
    this.core = new ExchangeCore(options, replay, System.nanoTime());
  }

  private <T> T locked(Supplier<T> action) {
    lock.lock();
    try {
      return action.get();
    } finally {
      lock.unlock();
    }
  }

  /** Runs an action after which the task thread looks again. */
  private void signalled(Runnable action) {
    lock.lock();
    try {
      action.run();
      changed.signalAll();
    } finally {
      lock.unlock();
    }
  }

  /** See {@link ExchangeCore#base}. */
  long base() {
    return locked(core::base);
  }

  /** See {@link ExchangeCore#begin}. */
  Collection<RequestBatch> begin(Attempt next) {
    return locked(() -> core.begin(next));
  }

  /** See {@link ExchangeCore#isRecoveryDue}. */
  boolean isRecoveryDue() {
    return locked(() -> core.isRecoveryDue(System.nanoTime()));
  }

  /** See {@link ExchangeCore#hasRoom}. */
  boolean hasRoom() {
    return locked(core::hasRoom);
  }

  /** See {@link ExchangeCore#admit}. */
  boolean admit(RequestBatch batch) {
    return locked(() -> core.admit(batch));
  }

  /** See {@link ExchangeCore#finishSending}. */
  boolean finishSending() {
    return locked(core::finishSending);
  }

  boolean isSendingFinished() {
    return locked(core::isSendingFinished);
  }

  /** See {@link ExchangeCore#next}. */
  ReplyQueue.Entry poll() {
    return locked(core::next);
  }

  Schema resultSchema() {
    return locked(core::resultSchema);
  }

  Report report() {
    return locked(core::report);
  }

  long bytesReceived() {
    return locked(core::bytesReceived);
  }

  /** Waits for a reply, the end or room; null when a new call is to be begun. */
  ReplyQueue.Entry awaitReply() throws InterruptedException {
    lock.lockInterruptibly();
    try {
      long waitingSinceNanos = System.nanoTime();
      while (true) {
        ReplyQueue.Entry entry = core.next();
        if (entry != null || core.isRecoveryDue(System.nanoTime())) {
          return entry;
        }
        if (core.roomOpened()) {
          return new ReplyQueue.Entry(Reply.ROOM, null);
        }
        await(core.restNanos(waitingSinceNanos, System.nanoTime()));
      }
    } finally {
      lock.unlock();
    }
  }

  /** Waits until the pool says which contents it lacks; null when the call is over. */
  List<ByteString> awaitWanted() throws InterruptedException {
    return awaitWhileRunning(core::takeWanted);
  }

  /** Waits until a call takes more without queueing it; false when the call is over. */
  boolean awaitReady(Attempt sending) throws InterruptedException {
    return awaitWhileRunning(() -> sending.isReady() ? Boolean.TRUE : null) != null;
  }

  private <T> T awaitWhileRunning(Supplier<T> look) throws InterruptedException {
    lock.lockInterruptibly();
    try {
      long waitingSinceNanos = System.nanoTime();
      while (core.isRunning()) {
        T found = look.get();
        if (found != null) {
          return found;
        }
        await(core.restNanos(waitingSinceNanos, System.nanoTime()));
      }
      return null;
    } finally {
      lock.unlock();
    }
  }

  private void await(long restNanos) throws InterruptedException {
    if (restNanos > 0) {
      changed.awaitNanos(restNanos);
    } else {
      core.expire(System.nanoTime());
    }
  }

  /** See {@link ExchangeCore#cancel}. */
  Attempt cancel(String reason) {
    lock.lock();
    try {
      changed.signalAll();
      return core.cancel(reason);
    } finally {
      lock.unlock();
    }
  }

  /** See {@link ExchangeCore#close}. */
  void close() {
    signalled(core::close);
  }

  @Override
  public void onReady() {
    signalled(() -> {});
  }

  @Override
  public void onEvent(Attempt from, ReplyEvent event, int sizeBytes)
      throws MalformedReplyException {
    lock.lock();
    try {
      core.onEvent(from, event, sizeBytes, System.nanoTime());
      changed.signalAll();
    } finally {
      lock.unlock();
    }
  }

  @Override
  public void onBroken(Attempt from, Failure broken) {
    signalled(() -> core.onBroken(from, broken, System.nanoTime()));
  }

  @Override
  public void onClosed(Attempt from, Status status, Metadata trailers) {
    signalled(() -> core.onClosed(from, status, trailers, System.nanoTime()));
  }
}
