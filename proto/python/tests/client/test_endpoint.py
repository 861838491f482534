# SPDX-License-Identifier: Apache-2.0
import pytest

from updraft.client.endpoint import Endpoint, Transport


@pytest.mark.parametrize(
    ("text", "transport", "target"),
    [
        ("grpc://pool:8815", Transport.TCP, "pool:8815"),
        (" grpc+tcp://pool:8815/ ", Transport.TCP_ONLY, "pool:8815"),
        ("grpc+tls://[::1]:8815", Transport.TLS, "[::1]:8815"),
        ("grpc+unix:///run/pool.sock", Transport.UNIX, "unix:/run/pool.sock"),
    ],
)
def test_an_endpoint_is_read_as_the_connector_reads_it(text: str, transport: Transport, target: str) -> None:
    endpoint = Endpoint.parse(text)
    assert (endpoint.transport, endpoint.target) == (transport, target)
    assert Endpoint.parse(str(endpoint)) == endpoint


@pytest.mark.parametrize(
    "text",
    [
        "",
        "pool:8815",
        "http://pool:8815",
        "grpc://pool",
        "grpc://pool:0",
        "grpc://pool:65536",
        "grpc://user@pool:1",
        "grpc://pool:1/path",
        "grpc://pool:1?x",
        "grpc://[::1:1",
        "grpc+unix://host/path",
        "grpc+unix:///",
    ],
)
def test_what_is_none_is_refused_with_what_is_expected(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected grpc://host:port"):
        Endpoint.parse(text)
