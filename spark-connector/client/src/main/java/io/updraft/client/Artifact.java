// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import com.google.protobuf.ByteString;
import java.io.IOException;
import java.io.InputStream;

/**
 * Bytes that a function needs beside its command, such as a broadcast or a file; a pool that lacks
 * them asks for them, and each pool that the exchange moves to asks anew.
 */
public interface Artifact {
  /** SHA-256 of the bytes, 32 bytes: by this the command names it. */
  ByteString sha256();

  /** Bytes in all. */
  long sizeBytes();

  /**
   * The bytes from the first on, at least {@link #sizeBytes} of them; the caller closes the stream.
   *
   * @throws IOException if they cannot be read; the exchange then fails
   */
  InputStream open() throws IOException;
}
