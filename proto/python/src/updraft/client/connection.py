# SPDX-License-Identifier: Apache-2.0
"""Address and credentials of a pool, from arguments or from the environment of this process."""

import contextlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TypedDict

import grpc

from updraft.client.credentials import Credentials, CredentialsError, token_in
from updraft.client.endpoint import Endpoint, Transport
from updraft.client.log_key import default_file, log_key
from updraft.protocol import LOG_KEY_HEADER, TENANT_HEADER

ENVIRONMENT_PREFIX = "UPDRAFT_CLIENT_"
"""Prefix of the environment variables that replace missing options, such as `UPDRAFT_CLIENT_ENDPOINT`.

The prefix differs from the services' prefix: a local pool inherits this process's environment, and must not read the
client's variables as its own settings, such as `UPDRAFT_TOKEN_FILE`.
"""

FLIGHT_INFO_METHOD = "/arrow.flight.protocol.FlightService/GetFlightInfo"
ACTION_METHOD = "/arrow.flight.protocol.FlightService/DoAction"
EXCHANGE_METHOD = "/arrow.flight.protocol.FlightService/DoExchange"

CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # A call has no deadline by default, so pings have to detect that the pool's machine is gone.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    # Switch off gRPC's retries: the client itself waits between attempts, and knows which calls are safe to repeat.
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    # Despite the option's name, this is how long one attempt to connect may take, the TLS handshake included.
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)

_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")
_StrPath = str | os.PathLike[str]


class ConnectionOptions(TypedDict, total=False):
    """Options of a connection to a pool; each is optional."""

    endpoint: str
    """Address: grpc://host:port, grpc+tls://host:port or grpc+unix:///path. Default: `UPDRAFT_CLIENT_ENDPOINT`."""

    token: str
    """Bearer token, for a pool that requires one."""

    token_file: _StrPath
    """File with the token, read again for each call. Default, without `token`: `UPDRAFT_CLIENT_TOKEN_FILE`."""

    ca_file: _StrPath
    """PEM file with the authorities to trust, with grpc+tls://.

    Default: `UPDRAFT_CLIENT_CA_FILE`, or this machine's authorities.
    """

    certificate_file: _StrPath
    """PEM file with this client's certificate, for mutual TLS. Default: `UPDRAFT_CLIENT_CERTIFICATE_FILE`."""

    key_file: _StrPath
    """PEM file with the certificate's private key. Default: `UPDRAFT_CLIENT_KEY_FILE`."""

    log_key_file: _StrPath
    """File with a secret by which the pool recognises your calls, to show you their output and profiles.

    Default: `UPDRAFT_CLIENT_LOG_KEY_FILE`, or the file that `updraft call` and `updraft logs` create. Without a file,
    the pool recognises your calls only if no other client shares your identity.
    """

    tenant: str
    """Tenant used for fair scheduling, if the token does not set it."""

    timeout_seconds: float
    """Deadline of each call, retries included. Default: none."""

    acquire_timeout_seconds: float
    """How long to retry while the pool is full or draining. Default: 60 seconds."""

    connect_timeout_seconds: float
    """How long to retry while the pool cannot be reached. Default: 5 seconds."""


@dataclass(frozen=True, slots=True)
class Connection:
    """Resolved options."""

    endpoint: Endpoint
    credentials: Credentials
    token_file: Path | None
    """File that is read again for each call; None if the token was given as text."""

    log_key_file: Path | None
    """File with the secret for logs and profiles. The file may be missing."""

    tenant: str
    timeout_seconds: float | None
    acquire_timeout_seconds: float
    connect_timeout_seconds: float

    @classmethod
    def of(cls, options: ConnectionOptions, environment: Mapping[str, str] = os.environ) -> Self:
        """Complete options with the environment; read the token's file.

        Raises:
            ValueError: No endpoint is named, or an option is malformed.
            TypeError: An option is unknown.
            CredentialsError: The token's file cannot be read.
        """
        unknown = sorted(set(options) - set(ConnectionOptions.__annotations__))
        if unknown:
            known = ", ".join(ConnectionOptions.__annotations__)
            raise TypeError(f"unknown option {unknown[0]!r}: the options of a connection are {known}")

        def text(name: str) -> str:
            value: Any = options.get(name) or environment.get(f"{ENVIRONMENT_PREFIX}{name.upper()}", "")
            return str(os.fspath(value))

        def path(name: str) -> Path | None:
            return Path(text(name)) if text(name) else None

        if not text("endpoint"):
            raise ValueError(f"no pool is named: pass endpoint='grpc://host:port', or set {ENVIRONMENT_PREFIX}ENDPOINT")
        token = options.get("token", "")
        token_file = None if token else path("token_file")
        if token_file is not None:
            token = token_in(token_file)
        tenant = options.get("tenant", "")
        for name, value in (("token", token), ("tenant", tenant)):
            # gRPC would send nothing, and its error would not name the header. Our error leaves out the value, which
            # may be a token.
            if not _HEADER_VALUE.fullmatch(value):
                raise ValueError(f"the {name} has characters that a header cannot carry, such as a line break")
        if (path("certificate_file") is None) != (path("key_file") is None):
            raise ValueError("certificate_file and key_file go together: give both, or neither")
        return cls(
            endpoint=Endpoint.parse(text("endpoint")),
            credentials=Credentials(token, path("ca_file"), path("certificate_file"), path("key_file")),
            token_file=token_file,
            log_key_file=path("log_key_file") or default_file(environment),
            tenant=tenant,
            timeout_seconds=options.get("timeout_seconds"),
            acquire_timeout_seconds=options.get("acquire_timeout_seconds", 60.0),
            connect_timeout_seconds=options.get("connect_timeout_seconds", 5.0),
        )

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Request headers of the next call."""
        credentials = self.credentials
        if self.token_file is not None:
            # The file may be missing for a moment while the token is rotated. Then use the token read at the start.
            with contextlib.suppress(CredentialsError):
                credentials = replace(credentials, token=token_in(self.token_file))
        tenant = [(TENANT_HEADER, self.tenant)] if self.tenant else []
        key = [(LOG_KEY_HEADER, self.log_key)] if self.log_key else []
        return (*credentials.headers, *tenant, *key)

    @property
    def log_key(self) -> str:
        """Key of this client's output and profiles; empty without a secret."""
        return log_key(self.log_key_file, self.endpoint)

    @property
    def grpc_credentials(self) -> grpc.ChannelCredentials | None:
        """TLS credentials, None for plain text; raises CredentialsError."""
        return self.credentials.grpc_credentials() if self.endpoint.transport is Transport.TLS else None
