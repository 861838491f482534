// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import java.io.File;
import java.io.Serializable;
import java.util.List;
import java.util.stream.Stream;

/**
 * PEM files for {@code grpc+tls}. An empty string means that there is no such file. Opening a call
 * with an unusable file raises {@link IllegalArgumentException}.
 *
 * @param ca the certificate authorities that sign the service's certificate; if empty, the JVM's
 *     authorities are trusted
 * @param certificate this client's certificate chain, for mutual TLS; requires the key
 * @param key private key of that certificate, in PKCS 8
 */
public record TlsFiles(String ca, String certificate, String key) implements Serializable {
  /** No files: trust the JVM's authorities and present no client certificate. */
  public static final TlsFiles NONE = new TlsFiles("", "", "");

  /** Return the modification time of each file; zero for a missing file. */
  List<Long> modifiedMilliseconds() {
    return Stream.of(ca, certificate, key).map(file -> new File(file).lastModified()).toList();
  }
}
