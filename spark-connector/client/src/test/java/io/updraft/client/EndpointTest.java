// SPDX-License-Identifier: Apache-2.0
package io.updraft.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

final class EndpointTest {
  @ParameterizedTest
  @ValueSource(
      strings = {
        "grpc://updraft-pool:8815",
        "grpc://127.0.0.1:1",
        "grpc://[::1]:8815",
        "grpc+tcp://127.0.0.1:8815",
        "grpc+tls://pool.example:443",
        "grpc+unix:///run/updraft/pool.sock"
      })
  void an_endpoint_is_written_as_it_was_read(String text) {
    assertEquals(text, Endpoint.parse(text).toString());
    assertEquals(Endpoint.parse(text), Endpoint.parse(" " + text + " "));
  }

  @ParameterizedTest
  @CsvSource({
    "grpc+unix:///run/updraft/pool.sock, true",
    "grpc://127.0.0.1:8815, true",
    "grpc://localhost:8815, true",
    "grpc://[::1]:8815, true",
    "grpc://10.0.0.1:8815, false",
    "grpc://updraft-pool:8815, false",
    "grpc+tcp://127.0.0.1:8815, false",
    "grpc+tls://localhost:8815, false"
  })
  void shared_memory_is_for_services_on_this_machine(String text, boolean mayShare) {
    assertEquals(mayShare, Endpoint.parse(text).mayShareMemory());
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "",
        "updraft-pool:8815",
        "http://updraft-pool:8815",
        "grpc://updraft-pool",
        "grpc://updraft-pool:0",
        "grpc://updraft-pool:65536",
        "grpc://updraft-pool:8815/path",
        "grpc://user@updraft-pool:8815",
        "grpc+unix://relative.sock",
        "grpc+unix:///",
        "grpc://a b:1"
      })
  void what_is_no_endpoint_is_refused(String text) {
    String message =
        assertThrows(IllegalArgumentException.class, () -> Endpoint.parse(text)).getMessage();
    assertTrue(message.contains("not an endpoint"), message);
    assertTrue(message.contains("\"" + text + "\""), message);
  }
}
