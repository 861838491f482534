// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import java.io.IOException;
import java.nio.ByteBuffer;

/** Destination of a file whose encoded bytes come back from the writer. */
@FunctionalInterface
public interface PartSink {
  /**
   * Append bytes. Called by one thread at a time. The caller reuses the buffer after this call, so
   * the sink must not keep it.
   *
   * @throws IOException if the bytes cannot be stored; the file then fails with {@code
   *     ERROR_KIND_SINK}
   */
  void append(ByteBuffer part) throws IOException;
}
