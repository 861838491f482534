// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import io.grpc.Metadata;

/** Request headers of every call: the section "Headers" of proto/README.md. */
final class CallHeaders {
  private static final Metadata.Key<String> AUTHORIZATION =
      Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);
  private static final Metadata.Key<String> TENANT =
      Metadata.Key.of("x-updraft-tenant", Metadata.ASCII_STRING_MARSHALLER);
  private static final Metadata.Key<String> TRACE_PARENT =
      Metadata.Key.of("traceparent", Metadata.ASCII_STRING_MARSHALLER);

  private CallHeaders() {}

  static Metadata of(ClientOptions options, BearerToken token) {
    Metadata headers = new Metadata();
    token.value().ifPresent(value -> headers.put(AUTHORIZATION, "Bearer " + value));
    options.tenant().ifPresent(tenant -> headers.put(TENANT, tenant));
    options.traceParent().ifPresent(parent -> headers.put(TRACE_PARENT, parent));
    return headers;
  }
}
