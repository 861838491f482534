# SPDX-License-Identifier: Apache-2.0
"""Address of a service, in the format that the connector's settings use (`io.updraft.client.Endpoint`)."""

import enum
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

_EXPECTED = "expected grpc://host:port, grpc+tcp://host:port, grpc+tls://host:port or grpc+unix:///path"


class Transport(enum.Enum):
    """Transport of an endpoint. Only Spark's connector tells TCP and TCP_ONLY apart: TCP may use shared memory."""

    TCP = "grpc"
    TCP_ONLY = "grpc+tcp"
    TLS = "grpc+tls"
    UNIX = "grpc+unix"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Parsed endpoint: `path` of a Unix socket, or `host` and `port`."""

    transport: Transport
    host: str = ""
    port: int = 0
    path: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse an endpoint; raises ValueError, whose message has the expected form."""
        try:
            uri = urlsplit(text.strip())
            port = uri.port
        except ValueError:
            raise _malformed(text) from None
        bare = not (uri.query or uri.fragment or uri.username or uri.password)
        match uri.scheme:
            case "grpc" | "grpc+tcp" | "grpc+tls" if bare and uri.hostname and port and uri.path in ("", "/"):
                return cls(Transport(uri.scheme), uri.hostname, port)
            case "grpc+unix" if bare and not uri.netloc and len(uri.path) > 1:
                return cls(Transport.UNIX, path=uri.path)
        raise _malformed(text)

    @property
    def target(self) -> str:
        """Endpoint in gRPC's syntax."""
        if self.transport is Transport.UNIX:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        if self.transport is Transport.UNIX:
            return f"grpc+unix://{self.path}"
        return f"{self.transport.value}://{self.target}"


def _malformed(text: str) -> ValueError:
    return ValueError(f"{text!r} is not an endpoint: {_EXPECTED}")
