// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import java.util.ArrayDeque;

/**
 * Replies that have arrived and were not taken. What may be in it is bounded by what was requested
 * of gRPC, one more for each that is taken. Not thread-safe.
 */
final class ReplyQueue implements AutoCloseable {
  /**
   * A reply and the call that it came from.
   *
   * @param call null when no call may send one more in its place
   */
  record Entry(Reply reply, CallCore.Call call) {}

  static final Entry ROOM = new Entry(Reply.ROOM, null);
  static final Entry END = new Entry(Reply.END, null);

  private final ArrayDeque<Entry> entries = new ArrayDeque<>();

  void add(Reply reply, CallCore.Call from) {
    entries.add(new Entry(reply, from));
  }

  /** The oldest, or null. */
  Entry poll() {
    return entries.poll();
  }

  /** Releases the batches: the call that they came from was lost, and another begins anew. */
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

  /** Releases what nobody took. */
  @Override
  public void close() {
    for (Entry entry = entries.poll(); entry != null; entry = entries.poll()) {
      if (entry.reply().kind() == Reply.Kind.BATCH) {
        entry.reply().batch().close();
      }
    }
  }
}
