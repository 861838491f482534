// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import com.google.protobuf.ByteString;
import io.grpc.Metadata;
import io.grpc.Status;
import io.updraft.proto.v1.Report;
import java.util.List;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Supplier;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * {@link ExchangeCore} under one lock, between the task thread and gRPC's event loop, and the wait
 * of the task thread. Either thread sends what may be sent: a batch that waits for admission is not
 * held up by a task that is busy elsewhere. Under the lock messages are sent, which calls nobody
 * back; calls are opened and cancelled outside.
 */
final class ExchangeState implements Attempt.Owner {
  private final ReentrantLock lock = new ReentrantLock();
  private final Condition changed = lock.newCondition();
  private final ExchangeCore core;
  private Attempt current;
  private long bytesSent;

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
  boolean begin(Attempt next) {
    return locked(
        () -> {
          current = next;
          return core.begin(next);
        });
  }

  /** See {@link ExchangeCore#opened}. */
  void opened(Attempt call, long commandBytes) {
    sending(() -> core.opened(call, commandBytes, System.nanoTime()));
  }

  /** Does something and sends what may be sent after it. */
  private void sending(Runnable action) {
    lock.lock();
    try {
      action.run();
      for (ExchangeCore.Step step = core.nextToSend(); step != null; step = core.nextToSend()) {
        bytesSent += step.batch() == null ? current.finish() : current.send(step.batch());
      }
    } finally {
      lock.unlock();
    }
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

  /** Sends what may be sent now. */
  void sendWhatMayBeSent() {
    sending(() -> {});
  }

  /** See {@link ExchangeCore#finishSending}. */
  void finishSending() {
    sending(core::finishSending);
  }

  /** Bytes of batches and of the last message, those sent again included. */
  long bytesSent() {
    return locked(() -> bytesSent);
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

  /** Waits until the pool asks for the deferred function; false when the call is over. */
  boolean awaitFunctionWanted() throws InterruptedException {
    return awaitWhileRunning(() -> core.isFunctionWanted() ? Boolean.TRUE : null) != null;
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
      if (event instanceof ReplyEvent.Admitted) {
        sendWhatMayBeSent();
      }
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
