// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import java.util.ArrayDeque;

/**
 * Queue of replies that have arrived and that the task has not taken yet. The number of messages
 * requested from gRPC limits its length: for each reply that the task takes, it requests one more
 * message. Not thread-safe.
 */
final class ReplyQueue implements AutoCloseable {
  /**
   * Reply and the call that delivered it.
   *
   * @param call the call that may send one more reply when the task takes this reply; null if no
   *     call may
   */
  record Entry(Reply reply, CallCore.Call call) {}

  static final Entry ROOM = new Entry(Reply.ROOM, null);
  static final Entry END = new Entry(Reply.END, null);

  private final ArrayDeque<Entry> entries = new ArrayDeque<>();

  void add(Reply reply, CallCore.Call from) {
    entries.add(new Entry(reply, from));
  }

  /** Remove and return the oldest entry; null if the queue is empty. */
  Entry poll() {
    return entries.poll();
  }

  /** Release the batches of a lost call, because another call starts over. */
  void dropBatches() {
    entries.removeIf(
        entry -> {
          boolean isBatch = entry.reply().kind() == Reply.Kind.BATCH;
          if (isBatch) {
            entry.reply().batch().close();
          }
          return isBatch;
        });
  }

  /** Release the batches that were not taken. */
  @Override
  public void close() {
    for (Entry entry = entries.poll(); entry != null; entry = entries.poll()) {
      if (entry.reply().kind() == Reply.Kind.BATCH) {
        entry.reply().batch().close();
      }
    }
  }
}
