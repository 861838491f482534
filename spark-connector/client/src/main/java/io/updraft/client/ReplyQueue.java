// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import java.util.ArrayDeque;

/**
 * Replies that have arrived and were not taken. What may be in it is bounded by what was requested
 * of gRPC, one more for each that is taken. Not thread-safe.
 */
final class ReplyQueue implements AutoCloseable {
  /** A reply and the call that it came from. */
  record Entry(Reply reply, Attempt attempt) {}

  private final ArrayDeque<Entry> entries = new ArrayDeque<>();

  void add(Reply reply, Attempt attempt) {
    entries.add(new Entry(reply, attempt));
  }

  /** The oldest, or null. */
  Entry poll() {
    return entries.poll();
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
