// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.netty.buffer.ByteBuf;
import java.nio.ByteBuffer;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.IpcOption;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * Batch that an exchange or a file has taken over and holds until it no longer needs the batch. The
 * batch is written again for each worker to which it is sent.
 */
final class RequestBatch implements AutoCloseable {
  /** Largest body for which one copy is cheaper than a list of buffers. */
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
   * Take a batch over. If this throws, the batch is closed.
   *
   * @throws ExchangeException if the batch is larger than the options allow
   */
  static RequestBatch takeOver(ArrowRecordBatch batch, BatchGroups groups, ClientOptions options) {
    try {
      RequestBatch request = new RequestBatch(batch, groups);
      if (request.bodyBytes > options.maxBatchBytes()) {
        throw Failure.tooLarge(request.bodyBytes, options).toException();
      }
      return request;
    } catch (RuntimeException e) {
      batch.close();
      throw e;
    }
  }

  /** Return the IPC metadata of batches with this schema. */
  static byte[] header(Schema schema) {
    return bytes(MessageSerializer.serializeMetadata(schema, IpcOption.DEFAULT));
  }

  static byte[] bytes(ByteBuffer buffer) {
    byte[] bytes = new byte[buffer.remaining()];
    buffer.duplicate().get(bytes);
    return bytes;
  }

  /** Return the batch's IPC metadata. */
  byte[] header() {
    return header;
  }

  /** Return the size of the body in bytes, including padding. */
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
   * Return a message made of the prefix and a range of this batch's body.
   *
   * @return the message; null if the batch was closed. A closed batch means that its exchange is
   *     over, so no call needs the message
   */
  synchronized ByteBuf message(
      WireAllocator allocator, ByteBuf prefix, long startByte, long endByte) {
    if (closed) {
      prefix.release();
      return null;
    }
    return endByte - startByte <= COPY_LIMIT_BYTES
        ? copied(prefix, startByte, endByte)
        : referenced(allocator, prefix, startByte, endByte);
  }

  /**
   * Copy the body into a buffer, starting at an index.
   *
   * @return false if the batch was closed, because its exchange is over
   */
  synchronized boolean copyTo(ByteBuffer target, int index) {
    if (closed) {
      return false;
    }
    for (int i = 0; i < batch.getBuffers().size(); i++) {
      Overlap overlap = overlap(i, 0, bodyBytes);
      if (overlap.length() > 0) {
        ByteBuffer source = overlap.buffer().nioBuffer(overlap.index(), overlap.length());
        target.put(index + (int) overlap.startByte(), source, 0, overlap.length());
      }
    }
    return true;
  }

  private ByteBuf copied(ByteBuf prefix, long startByte, long endByte) {
    int start = prefix.writerIndex();
    prefix.writeZero((int) (endByte - startByte));
    for (int i = 0; i < batch.getBuffers().size(); i++) {
      Overlap overlap = overlap(i, startByte, endByte);
      if (overlap.length() > 0) {
        int offset = start + (int) (overlap.startByte() - startByte);
        prefix.setBytes(offset, overlap.buffer().nioBuffer(overlap.index(), overlap.length()));
      }
    }
    return prefix;
  }

  private ByteBuf referenced(
      WireAllocator allocator, ByteBuf prefix, long startByte, long endByte) {
    int buffers = batch.getBuffers().size();
    WireAllocator.WireBuffer message = new WireAllocator.WireBuffer(allocator, prefix, buffers);
    try {
      long written = startByte;
      for (int i = 0; i < buffers; i++) {
        Overlap overlap = overlap(i, startByte, endByte);
        if (overlap.length() > 0) {
          message.addPadding((int) (overlap.startByte() - written));
          message.addBody(overlap.buffer(), overlap.index(), overlap.length());
          written = overlap.startByte() + overlap.length();
        }
      }
      message.addPadding((int) (endByte - written));
      return message;
    } catch (RuntimeException e) {
      message.release();
      throw e;
    }
  }

  /**
   * Overlap of a range of the body with one of the batch's buffers.
   *
   * @param startByte start of the overlap in the body
   * @param index start of the overlap in the buffer
   * @param length length in bytes; zero or less means no overlap
   */
  private record Overlap(ArrowBuf buffer, long startByte, long index, int length) {}

  private Overlap overlap(int i, long startByte, long endByte) {
    ArrowBuf buffer = batch.getBuffers().get(i);
    long offset = batch.getBuffersLayout().get(i).getOffset();
    long start = Math.max(startByte, offset);
    long end = Math.min(endByte, offset + buffer.readableBytes());
    return new Overlap(buffer, start, buffer.readerIndex() + start - offset, (int) (end - start));
  }

  @Override
  public synchronized void close() {
    if (!closed) {
      closed = true;
      batch.close();
    }
  }
}
