// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.ReferenceManager;

/**
 * One FlightData from pool to client.
 *
 * @param header IPC metadata; empty when there is none
 * @param appMetadata the protocol's own message
 * @param body the batch's buffers, owned by this message; null when there is none
 * @param sizeBytes bytes on the wire
 */
record IncomingMessage(byte[] header, byte[] appMetadata, ArrowBuf body, int sizeBytes)
    implements AutoCloseable {
  private static final ArrowBuf EMPTY = new ArrowBuf(ReferenceManager.NO_OP, null, 0, 0);

  /** The body of a batch; one without rows may have none on the wire. */
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
