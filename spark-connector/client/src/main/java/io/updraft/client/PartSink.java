// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import java.io.IOException;
import java.nio.ByteBuffer;

/** Keeps a file whose encoded bytes come back from the writer. */
@FunctionalInterface
public interface PartSink {
  /**
   * Appends bytes, which are the caller's again afterwards; on one thread at a time.
   *
   * @throws IOException if they cannot be stored; the file then fails with {@code ERROR_KIND_SINK}
   */
  void append(ByteBuffer part) throws IOException;
}
