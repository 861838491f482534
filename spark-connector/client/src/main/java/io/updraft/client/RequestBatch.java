// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.netty.buffer.ByteBuf;
import java.nio.ByteBuffer;
import java.util.List;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.vector.ipc.message.ArrowBuffer;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.IpcOption;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * A batch that the exchange has taken over, held until it cannot be needed again. It may be written
 * several times: once for each worker that it is sent to.
 */
final class RequestBatch implements AutoCloseable {
  /** Up to here one copy is cheaper than a list of buffers. */
  static final int COPY_LIMIT_BYTES = 8 << 10;

  private final ArrowRecordBatch batch;
  private final BatchGroups groups;
  private final byte[] header;
  private final long bodyBytes;
  private final int rows;
  private boolean closed;

  RequestBatch(ArrowRecordBatch batch, BatchGroups groups) {
    this.batch = batch;
    this.groups = groups;
    this.header = bytes(MessageSerializer.serializeMetadata(batch, IpcOption.DEFAULT));
    this.bodyBytes = batch.computeBodyLength();
    this.rows = batch.getLength();
  }

  /**
   * Takes a batch over, and closes it when this throws.
   *
   * @throws ExchangeException if the batch is larger than a message may be
   */
  static RequestBatch takeOver(ArrowRecordBatch batch, BatchGroups groups, int limitBytes) {
    try {
      RequestBatch request = new RequestBatch(batch, groups);
      if (request.bodyBytes + request.header.length > limitBytes) {
        throw Failure.tooLarge(request.bodyBytes, limitBytes).toException();
      }
      return request;
    } catch (RuntimeException e) {
      batch.close();
      throw e;
    }
  }

  /** The IPC metadata of batches with this schema. */
  static byte[] header(Schema schema) {
    return bytes(MessageSerializer.serializeMetadata(schema, IpcOption.DEFAULT));
  }

  static byte[] bytes(ByteBuffer buffer) {
    byte[] bytes = new byte[buffer.remaining()];
    buffer.duplicate().get(bytes);
    return bytes;
  }

  /** The batch's IPC metadata. */
  byte[] header() {
    return header;
  }

  /** Bytes of the body with its padding. */
  long bodyBytes() {
    return bodyBytes;
  }

  int rows() {
    return rows;
  }

  BatchGroups groups() {
    return groups;
  }

  /**
   * A message of the prefix and this batch's body.
   *
   * @return null when the batch was closed: its exchange is over, and so is the call that asks
   */
  synchronized ByteBuf message(WireAllocator allocator, ByteBuf prefix) {
    if (closed) {
      prefix.release();
      return null;
    }
    return bodyBytes <= COPY_LIMIT_BYTES ? copied(prefix) : referenced(allocator, prefix);
  }

  private ByteBuf copied(ByteBuf prefix) {
    int start = prefix.writerIndex();
    prefix.writeZero((int) bodyBytes);
    List<ArrowBuffer> layout = batch.getBuffersLayout();
    for (int i = 0; i < layout.size(); i++) {
      ArrowBuf buffer = batch.getBuffers().get(i);
      int length = (int) buffer.readableBytes();
      if (length > 0) {
        int offset = start + (int) layout.get(i).getOffset();
        prefix.setBytes(offset, buffer.nioBuffer(buffer.readerIndex(), length));
      }
    }
    return prefix;
  }

  private ByteBuf referenced(WireAllocator allocator, ByteBuf prefix) {
    List<ArrowBuffer> layout = batch.getBuffersLayout();
    WireBuffer message = new WireBuffer(allocator, prefix, layout.size());
    try {
      long written = 0;
      for (int i = 0; i < layout.size(); i++) {
        ArrowBuf buffer = batch.getBuffers().get(i);
        if (buffer.readableBytes() > 0) {
          message.addPadding((int) (layout.get(i).getOffset() - written));
          message.addBody(buffer);
          written = layout.get(i).getOffset() + buffer.readableBytes();
        }
      }
      message.addPadding((int) (bodyBytes - written));
      return message;
    } catch (RuntimeException e) {
      message.release();
      throw e;
    }
  }

  @Override
  public synchronized void close() {
    if (!closed) {
      closed = true;
      batch.close();
    }
  }
}
