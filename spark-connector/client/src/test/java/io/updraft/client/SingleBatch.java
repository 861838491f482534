// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import org.apache.arrow.memory.RootAllocator;

/** One request batch with an allocator of its own; closing fails if the batch leaked. */
final class SingleBatch implements AutoCloseable {
  private final RootAllocator root = new RootAllocator();
  private final RequestBatch batch;

  SingleBatch(int rows) {
    this.batch = new RequestBatch(Batches.counting(root, 0, rows));
  }

  RequestBatch batch() {
    return batch;
  }

  @Override
  public void close() {
    batch.close();
    root.close();
  }
}
