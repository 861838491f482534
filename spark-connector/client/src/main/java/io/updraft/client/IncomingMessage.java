// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.ReferenceManager;

/**
 * FlightData from pool to client.
 *
 * @param header IPC metadata; may be empty
 * @param appMetadata the protocol's own message
 * @param body the batch's buffers, owned by this message; null if absent
 * @param sizeBytes size on the wire in bytes
 */
record IncomingMessage(byte[] header, byte[] appMetadata, ArrowBuf body, int sizeBytes)
    implements AutoCloseable {
  private static final ArrowBuf EMPTY = new ArrowBuf(ReferenceManager.NO_OP, null, 0, 0);

  /** Return the body of a batch; empty if the message has no body, as for a batch without rows. */
  ArrowBuf batchBody() {
    return body == null ? EMPTY : body;
  }

  @Override
  public void close() {
    if (body != null) {
      body.close();
    }
  }
}
