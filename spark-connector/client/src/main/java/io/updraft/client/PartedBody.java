// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.updraft.proto.v1.BatchPart;
import org.apache.arrow.memory.ArrowBuf;

/** Body of a reply batch that exceeds the message limit, assembled from its parts. */
final class PartedBody implements AutoCloseable {
  private final long limitBytes;
  private ArrowBuf body;
  private long bodyBytes;

  /**
   * Create an empty body.
   *
   * @param limitBytes limit on the whole body; no memory is allocated for a larger body
   */
  PartedBody(long limitBytes) {
    this.limitBytes = limitBytes;
  }

  /** Return whether at least one part has arrived and the last part has not. */
  boolean isOpen() {
    return body != null;
  }

  /** Take the next part. The part's buffer still belongs to the caller. */
  void add(BatchPart part, ArrowBuf data) throws MalformedReplyException {
    if (body == null) {
      begin(part, data);
    }
    if (part.getBodyBytes() != bodyBytes || part.getOffset() != body.writerIndex()) {
      throw new MalformedReplyException(
          "a part came at offset %d of %d bytes, expected offset %d of %d bytes"
              .formatted(part.getOffset(), part.getBodyBytes(), body.writerIndex(), bodyBytes));
    }
    append(data);
  }

  private void begin(BatchPart first, ArrowBuf data) throws MalformedReplyException {
    bodyBytes = first.getBodyBytes();
    if (bodyBytes < 0 || bodyBytes > limitBytes) {
      throw new MalformedReplyException(
          "a reply of %s bytes is larger than the %d that can be received"
              .formatted(Long.toUnsignedString(bodyBytes), limitBytes));
    }
    body = data.getReferenceManager().getAllocator().buffer(bodyBytes);
  }

  private void append(ArrowBuf data) throws MalformedReplyException {
    long bytes = data.readableBytes();
    if (bytes == 0 || bytes > bodyBytes - body.writerIndex()) {
      throw new MalformedReplyException(
          "a part has %d bytes, expected 1 to %d".formatted(bytes, bodyBytes - body.writerIndex()));
    }
    body.setBytes(body.writerIndex(), data, data.readerIndex(), bytes);
    body.writerIndex(body.writerIndex() + bytes);
  }

  /** Take the last part and return the whole body, which the caller closes. */
  ArrowBuf completed(ArrowBuf last) throws MalformedReplyException {
    append(last);
    if (body.writerIndex() != bodyBytes) {
      throw new MalformedReplyException(
          "the parts of a reply have %d of %d bytes".formatted(body.writerIndex(), bodyBytes));
    }
    ArrowBuf whole = body;
    body = null;
    return whole;
  }

  @Override
  public void close() {
    if (body != null) {
      body.close();
      body = null;
    }
  }
}
