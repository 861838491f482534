// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import org.apache.arrow.memory.ArrowBuf;

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
  @Override
  public void close() {
    if (body != null) {
      body.close();
    }
  }
}
