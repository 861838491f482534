// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import java.util.List;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.ReferenceManager;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.ipc.message.ArrowFieldNode;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;

/** One request batch with an allocator of its own; closing fails if the batch leaked. */
final class SingleBatch implements AutoCloseable {
  private final RootAllocator root = new RootAllocator();
  private final RequestBatch batch;

  SingleBatch(int rows) {
    this.batch = new RequestBatch(Batches.counting(root, 0, rows), BatchGroups.NONE);
  }

  /** Return a batch that has a size but no memory. */
  static ArrowRecordBatch unowned(int rows) {
    ArrowBuf buffer = new ArrowBuf(ReferenceManager.NO_OP, null, 8L * rows, 0);
    buffer.writerIndex(8L * rows);
    return new ArrowRecordBatch(rows, List.of(new ArrowFieldNode(rows, 0)), List.of(buffer));
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
