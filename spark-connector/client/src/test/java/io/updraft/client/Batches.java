// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import java.nio.ByteBuffer;
import java.util.List;
import org.apache.arrow.flatbuf.Message;
import org.apache.arrow.flatbuf.RecordBatch;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.ipc.message.ArrowFieldNode;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.IpcOption;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.Schema;

/** Batches of one int64 column without nulls. */
final class Batches {
  static final Schema SCHEMA =
      new Schema(List.of(Field.nullable("_0", new ArrowType.Int(64, true))));

  private Batches() {}

  /** Return a batch with the values {@code first}, {@code first + 1}, and so on. */
  static ArrowRecordBatch counting(BufferAllocator allocator, long first, int rows) {
    try (ArrowBuf values = allocator.buffer(Math.max(8L, 8L * rows))) {
      for (int i = 0; i < rows; i++) {
        values.setLong(8L * i, first + i);
      }
      values.writerIndex(8L * rows);
      List<ArrowBuf> buffers = List.of(allocator.getEmpty(), values);
      return new ArrowRecordBatch(rows, List.of(new ArrowFieldNode(rows, 0)), buffers);
    }
  }

  /** Return the first value of a batch. */
  static long first(ArrowRecordBatch batch) {
    return batch.getBuffers().get(1).getLong(0);
  }

  static int rows(byte[] header) {
    Message message = Message.getRootAsMessage(ByteBuffer.wrap(header));
    return (int) ((RecordBatch) message.header(new RecordBatch())).length();
  }

  /** Return the IPC metadata of a batch with this many rows. */
  static byte[] header(int rows) {
    try (RootAllocator allocator = new RootAllocator();
        ArrowRecordBatch batch = counting(allocator, 0, rows)) {
      return RequestBatch.bytes(MessageSerializer.serializeMetadata(batch, IpcOption.DEFAULT));
    }
  }
}
