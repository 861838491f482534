// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import java.io.IOException;
import java.nio.ByteBuffer;
import org.apache.arrow.flatbuf.Buffer;
import org.apache.arrow.flatbuf.FieldNode;
import org.apache.arrow.flatbuf.Message;
import org.apache.arrow.flatbuf.MessageHeader;
import org.apache.arrow.flatbuf.RecordBatch;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.arrow.vector.types.pojo.Schema;

/** Reader of Arrow's IPC metadata that checks every offset against the bytes received. */
final class IpcReader {
  private IpcReader() {}

  /** Return the kind of an IPC message, a constant of {@link MessageHeader}. */
  static byte kind(byte[] header) throws MalformedReplyException {
    try {
      return message(header).headerType();
    } catch (RuntimeException e) {
      throw notArrow(e);
    }
  }

  /** Return the schema in an IPC message. */
  static Schema schema(byte[] header) throws MalformedReplyException {
    try {
      return MessageSerializer.deserializeSchema(message(header));
    } catch (RuntimeException e) {
      throw notArrow(e);
    }
  }

  /**
   * Return the batch in an IPC message. The batch's buffers are slices of the body, and the batch
   * holds its own references to the body.
   */
  static ArrowRecordBatch batch(byte[] header, ArrowBuf body) throws MalformedReplyException {
    try {
      RecordBatch batch = (RecordBatch) message(header).header(new RecordBatch());
      check(batch, body);
      return slices(batch, body);
    } catch (IOException | RuntimeException e) {
      throw notArrow(e);
    }
  }

  /**
   * Slice the body into the batch's buffers. Arrow's reader releases the reference taken here only
   * if it succeeds, so this method releases it after a failure.
   */
  private static ArrowRecordBatch slices(RecordBatch batch, ArrowBuf body) throws IOException {
    body.getReferenceManager().retain();
    boolean done = false;
    try {
      ArrowRecordBatch slices = MessageSerializer.deserializeRecordBatch(batch, body);
      done = true;
      return slices;
    } finally {
      if (!done) {
        body.getReferenceManager().release();
      }
    }
  }

  private static void check(RecordBatch batch, ArrowBuf body) throws MalformedReplyException {
    if (batch.compression() != null) {
      throw new MalformedReplyException("the pool compressed a batch");
    }
    if (batch.length() < 0 || batch.length() > Integer.MAX_VALUE) {
      throw new MalformedReplyException("a batch claims " + batch.length() + " rows");
    }
    for (int i = 0; i < batch.nodesLength(); i++) {
      checkNode(batch.nodes(i));
    }
    for (int i = 0; i < batch.buffersLength(); i++) {
      checkBuffer(batch.buffers(i), body.readableBytes());
    }
  }

  private static void checkNode(FieldNode node) throws MalformedReplyException {
    boolean sound = node.length() >= 0 && node.length() <= Integer.MAX_VALUE;
    if (!sound || node.nullCount() < 0 || node.nullCount() > node.length()) {
      throw new MalformedReplyException(
          "a column claims " + node.length() + " values and " + node.nullCount() + " nulls");
    }
  }

  private static void checkBuffer(Buffer buffer, long bodyBytes) throws MalformedReplyException {
    boolean inside =
        buffer.offset() >= 0
            && buffer.length() >= 0
            && buffer.offset() <= bodyBytes
            && buffer.length() <= bodyBytes - buffer.offset();
    if (!inside) {
      throw new MalformedReplyException(
          "a buffer of "
              + buffer.length()
              + " bytes at offset "
              + buffer.offset()
              + " exceeds a body of "
              + bodyBytes
              + " bytes");
    }
  }

  private static Message message(byte[] header) {
    return Message.getRootAsMessage(ByteBuffer.wrap(header));
  }

  private static MalformedReplyException notArrow(Exception cause) {
    return cause instanceof MalformedReplyException known
        ? known
        : new MalformedReplyException("the pool sent invalid Arrow data: " + cause, cause);
  }
}
