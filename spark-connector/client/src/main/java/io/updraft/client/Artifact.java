// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import com.google.protobuf.ByteString;
import java.io.IOException;
import java.io.InputStream;

/** Bytes that a function needs beside its command; a pool that lacks them asks for them. */
public interface Artifact {
  /** The digest by which the command names it. */
  ByteString sha256();

  /** Bytes in all. */
  long sizeBytes();

  /** The bytes from the first on; the caller closes the stream. */
  InputStream open() throws IOException;
}
