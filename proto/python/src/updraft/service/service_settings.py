# SPDX-License-Identifier: Apache-2.0
"""The settings that every service has: where it listens, whom it lets in, what it bounds, how it logs.

A service subclasses `ServiceSettings` and adds its own; `updraft.service.listeners` serves what is declared here.
"""

import os
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, model_validator

from updraft.service.addresses import TcpAddress, parse_tcp_address, with_free_port
from updraft.service.settings import Settings, setting

MIB = 1024 * 1024

# Variables of settings that were removed. An unknown option is refused anyway; an unknown variable would be ignored.
_NO_DEADLINE = "a service has no deadline of its own; UPDRAFT_CLIENT_SILENCE_SECONDS bounds the silence of clients"
_GONE = {"UPDRAFT_DEFAULT_DEADLINE_SECONDS": _NO_DEADLINE, "UPDRAFT_MAX_DEADLINE_SECONDS": _NO_DEADLINE}


def _checked_address(text: str) -> str:
    return str(parse_tcp_address(text)) if text else text


Address = Annotated[str, AfterValidator(_checked_address)]


def _checked_collector(text: str) -> str:
    url = urlsplit(text)
    if text and (url.scheme not in ("http", "https") or not url.hostname or url.path.strip("/")):
        raise ValueError(f"{text!r} is no collector: expected http://host:port or https://host:port")
    return text


Collector = Annotated[str, AfterValidator(_checked_collector)]


class ServiceSettings(Settings):
    """Settings of a service that listens for Arrow Flight.

    The default ports are those of a pool; another service restates them (`updraft.service.settings.restated`).
    """

    listen: Address = setting(
        "TCP address for Arrow Flight; port 0 lets the system choose, an empty text switches TCP off.",
        default="127.0.0.1:8815",
    )
    listen_unix: Path | None = setting(
        "Path of a Unix socket for Arrow Flight, beside or instead of TCP.", default=None
    )
    listen_unix_access: Literal["owner", "group", "everyone"] = setting(
        "Which users of this machine may connect to the Unix socket.", default="owner"
    )
    admin_listen: Address = setting(
        "Address for grpc.health.v1 alone, so that a flood of exchanges cannot fail a probe; empty switches it off.",
        default="127.0.0.1:8825",
    )
    metrics_listen: Address = setting(
        "Address for Prometheus metrics at /metrics and the state at /status.json; a pool shows it to people at "
        "/status. Empty switches them off.",
        default="127.0.0.1:9825",
    )
    ready_file: Path | None = setting(
        "JSON file written once the service is ready: the addresses really bound and the process ids.", default=None
    )

    token_file: Path | None = setting(
        "File of bearer tokens that clients may present, one a line; # starts a comment. Read again when it changes. "
        "When it has been missing or unusable for two seconds, no token is valid until it can be read again.",
        default=None,
    )
    insecure_no_token: bool = setting(
        "Let anybody who reaches an address beyond loopback use the service, without a token or client certificate.",
        default=False,
    )
    tls_certificate_file: Path | None = setting(
        "Certificate chain of the server in PEM; switches TLS on. Read again when it changes.", default=None
    )
    tls_key_file: Path | None = setting("Private key of the certificate in PEM.", default=None)
    tls_client_ca_file: Path | None = setting(
        "Certificates in PEM whose holders may connect; switches mutual TLS on.", default=None
    )

    allow_remote_drain: bool = setting(
        'Let whoever may connect drain the service with DoAction("updraft.drain"). SIGTERM drains it in any case.',
        default=False,
    )

    max_exchanges: int = setting("Calls that may be open on one connection at once.", default=1024, unit="calls", ge=1)
    max_message_bytes: int = setting(
        "The largest Flight message, and so the largest batch, that is taken.",
        default=64 * MIB,
        unit="bytes",
        ge=MIB,
        le=1024 * MIB,
    )
    first_message_timeout_seconds: float = setting(
        "Time within which an exchange must say what it wants.", default=10.0, unit="seconds", gt=0
    )
    client_silence_seconds: float = setting(
        "End an exchange whose client says nothing for this long while the service waits for it: it sends neither data "
        "nor a keepalive, and reads nothing. Updraft's own clients send a keepalive every 30 seconds. 0 sets no limit.",
        default=600.0,
        unit="seconds",
        ge=0,
    )
    keepalive_seconds: float = setting(
        "A connection silent for this long is probed and closed when it does not answer.",
        default=60.0,
        unit="seconds",
        ge=10,
    )
    handshake_timeout_seconds: float = setting(
        "Time within which a connection must finish its handshake.", default=10.0, unit="seconds", gt=0
    )
    drain_timeout_seconds: float = setting(
        "Time that running exchanges get to finish after SIGTERM. Then the service ends them and tells their "
        "clients to try another pool or writer.",
        default=60.0,
        unit="seconds",
        ge=0,
    )

    log_format: Literal["json", "console"] = setting("How log lines look.", default="json")
    log_level: Literal["debug", "info", "warning", "error"] = setting(
        "The least severity that is logged.", default="info"
    )
    trace_endpoint: Collector = setting(
        "OpenTelemetry collector that gets a trace of every exchange, by OTLP over gRPC: http://host:port, or https; "
        "empty switches tracing off.",
        default="",
    )

    @model_validator(mode="after")
    def _sets_nothing_that_is_gone(self) -> Self:
        for name, instead in _GONE.items():
            if name in os.environ:
                raise ValueError(f"{name} was removed: {instead}")
        return self

    @model_validator(mode="after")
    def _listens_somewhere(self) -> Self:
        if not self.listen and self.listen_unix is None:
            raise ValueError("give --listen or --listen-unix: the service would listen nowhere")
        return self

    @model_validator(mode="after")
    def _tls_is_complete(self) -> Self:
        if (self.tls_certificate_file is None) != (self.tls_key_file is None):
            raise ValueError("--tls-certificate-file and --tls-key-file go together")
        if self.tls_client_ca_file is not None and self.tls_certificate_file is None:
            raise ValueError("--tls-client-ca-file needs --tls-certificate-file and --tls-key-file")
        return self

    @model_validator(mode="after")
    def _strangers_are_kept_out(self) -> Self:
        address = self.listen_address
        guarded = self.token_file is not None or self.tls_client_ca_file is not None or self.insecure_no_token
        if self.listen_unix_access == "everyone" and self.token_file is None and not self.insecure_no_token:
            raise ValueError(
                "--listen-unix-access everyone lets any user of this machine use the service: "
                "give --token-file, or say --insecure-no-token"
            )
        if address is not None and not address.is_loopback and not guarded:
            raise ValueError(
                f"--listen {address} is reachable from other machines, and anybody there could use the service: "
                "give --token-file or --tls-client-ca-file, or say --insecure-no-token"
            )
        return self

    @property
    def listen_address(self) -> TcpAddress | None:
        """Where Flight is served over TCP, if it is."""
        return parse_tcp_address(self.listen) if self.listen else None

    @property
    def admin_address(self) -> TcpAddress | None:
        """Where health alone is served, if it is."""
        return parse_tcp_address(self.admin_listen) if self.admin_listen else None

    @property
    def metrics_address(self) -> TcpAddress | None:
        """Where metrics are served, if they are."""
        return parse_tcp_address(self.metrics_listen) if self.metrics_listen else None

    def with_free_ports(self) -> Self:
        """The same settings with a free port in place of every 0: a restarted process binds the same ports again."""
        free = {
            name: str(with_free_port(address))
            for name, address in (
                ("listen", self.listen_address),
                ("admin_listen", self.admin_address),
                ("metrics_listen", self.metrics_address),
            )
            if address is not None
        }
        return self.model_copy(update=free)
