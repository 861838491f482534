// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import java.nio.file.Path;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;

/**
 * The PEM files of {@code grpc+tls}. One that cannot be used raises {@link
 * IllegalArgumentException} when a call is opened.
 *
 * @param ca the certificate authorities that sign the service's certificate; empty trusts those of
 *     the JVM
 * @param certificate this client's certificate chain, for mutual TLS; goes together with the key
 * @param key the private key of that certificate, in PKCS 8
 */
public record TlsFiles(Optional<Path> ca, Optional<Path> certificate, Optional<Path> key) {
  /** No files: the JVM's authorities, and no certificate of this client. */
  public static final TlsFiles NONE =
      new TlsFiles(Optional.empty(), Optional.empty(), Optional.empty());

  /** When each file was written last; zero for one that is not there. */
  List<Long> modifiedMilliseconds() {
    return Stream.of(ca, certificate, key)
        .map(file -> file.map(path -> path.toFile().lastModified()).orElse(0L))
        .toList();
  }
}
