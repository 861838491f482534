// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import com.google.protobuf.ByteString;
import java.io.IOException;
import java.io.InputStream;

/**
 * Bytes that a function needs in addition to its command, such as a broadcast or a file. A pool
 * asks for the bytes if it does not have them. If the exchange moves to another pod, that pod may
 * ask again.
 */
public interface Artifact {
  /**
   * Return the SHA-256 of the bytes (32 bytes). The command identifies the artifact by this value.
   */
  ByteString sha256();

  /** Return the total number of bytes. */
  long sizeBytes();

  /**
   * Open a stream that starts at the first byte and contains at least {@link #sizeBytes} bytes. The
   * caller closes the stream.
   *
   * @throws IOException if the bytes cannot be read; the exchange then fails
   */
  InputStream open() throws IOException;
}
