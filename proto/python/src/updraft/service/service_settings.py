# SPDX-License-Identifier: Apache-2.0
"""Settings that both services have: addresses, authentication, limits, logging.

A service subclasses `ServiceSettings` and adds its own settings. `updraft.service.listeners` opens the addresses
declared here.
"""

from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, model_validator

from updraft.service.addresses import TcpAddress, parse_tcp_address, with_free_port
from updraft.service.settings import Settings, setting

MIB = 1024 * 1024


def _checked_address(text: str) -> str:
    return str(parse_tcp_address(text)) if text else text


Address = Annotated[str, AfterValidator(_checked_address)]


def _checked_collector(text: str) -> str:
    url = urlsplit(text)
    if text and (url.scheme not in ("http", "https") or not url.hostname or url.path.strip("/")):
        raise ValueError(f"{text!r} is not the address of a collector: expected http://host:port or https://host:port")
    return text


Collector = Annotated[str, AfterValidator(_checked_collector)]


class ServiceSettings(Settings):
    """Settings of a service that listens for Arrow Flight.

    The default ports are those of a pool; another service restates them (`updraft.service.settings.restated`).
    """

    listen: Address = setting(
        "TCP address for Arrow Flight. Port 0 lets the system choose a port; an empty value switches TCP off.",
        default="127.0.0.1:8815",
    )
    listen_unix: Path | None = setting(
        "Path of a Unix socket for Arrow Flight, in addition to TCP or instead of it.", default=None
    )
    listen_unix_access: Literal["owner", "group", "everyone"] = setting(
        "Users of this machine who may connect to the Unix socket.", default="owner"
    )
    admin_listen: Address = setting(
        "Address that serves only grpc.health.v1, so that probes succeed however busy the main address is. An empty "
        "value switches it off.",
        default="127.0.0.1:8825",
    )
    metrics_listen: Address = setting(
        "Address for Prometheus metrics at /metrics and the service's state at /status.json; a pool also serves a "
        "page for people at /status. An empty value switches all of them off.",
        default="127.0.0.1:9825",
    )
    metrics_token_file: Path | None = setting(
        "File of the bearer tokens with which metrics and status may be read, in the form of --token-file; a browser "
        "takes one as the password of any user. Without it other machines need no token, and this one only where a "
        "pool runs functions of sessions, which may ask too: the token is then in a file that the pool's log names.",
        default=None,
    )
    ready_file: Path | None = setting(
        "JSON file to write once the service is ready, with the addresses it is bound to and its process ids.",
        default=None,
    )

    token_file: Path | None = setting(
        "File of the bearer tokens that clients may present, one per line; # starts a comment. The service reads it "
        "again when it changes. Once the file has been missing or unusable for two seconds, no token is valid until "
        "it can be read again.",
        default=None,
    )
    identities_file: Path | None = setting(
        "TOML file of the identities of clients: the SHA-256 digests of their tokens and the names in their "
        "certificates, with the tenant of each and its scopes (call, session, write, admin); the issuers whose JSON "
        "Web Tokens count, with a ceiling of tenants and scopes; and caps for what each tenant takes. Reading it "
        "tells no token, so that it may lie with other configuration; whoever changes it decides who may do what. The "
        "service reads it again when it changes, as --token-file. Clients with a token of --token-file have the scopes "
        "call, session and write, and say themselves which tenant they are.",
        default=None,
    )
    insecure_no_token: bool = setting(
        "Accept clients without a token or certificate on addresses that other machines can reach.",
        default=False,
    )
    tls_certificate_file: Path | None = setting(
        "The server's certificate chain, in PEM; switches TLS on. Read again when it changes.", default=None
    )
    tls_key_file: Path | None = setting("Private key of the server's certificate, in PEM.", default=None)
    tls_client_ca_file: Path | None = setting(
        "Authorities whose client certificates are accepted, in PEM; switches mutual TLS on.", default=None
    )

    audit_file: Path | None = setting(
        "File to which a JSON line is appended before each exchange, at its end, and for each refusal: who, which "
        "function or file, from which address, and the outcome. - is standard output. A file that a log collector has "
        "renamed is followed by a new one.",
        default=None,
    )
    audit_failure: Literal["refuse", "count"] = setting(
        "What happens while --audit-file cannot be written. refuse: exchanges are refused, and clients told to try "
        "elsewhere; records of what has happened wait. count: work goes on, and records are lost and counted.",
        default="refuse",
    )

    allow_remote_drain: bool = setting(
        'Let every client that may connect drain the service, with DoAction("updraft.drain"). SIGTERM always drains '
        "it.",
        default=False,
    )

    max_message_bytes: int = setting(
        "Maximum size of a Flight message. Larger batches come in parts.",
        default=64 * MIB,
        unit="bytes",
        ge=MIB,
        le=1024 * MIB,
    )
    client_silence_seconds: float = setting(
        "End an exchange whose client has been silent for this long while the service waits for it: no data, no "
        "keepalive, nothing read. Updraft's own clients send a keepalive every 30 seconds. 0 sets no limit.",
        default=600.0,
        unit="seconds",
        ge=0,
    )
    drain_timeout_seconds: float = setting(
        "Time for running exchanges to finish after SIGTERM. The service then ends them and tells their clients to "
        "try another pool or writer.",
        default=60.0,
        unit="seconds",
        ge=0,
    )

    end_with_stdin: bool = setting(
        "End as after SIGTERM once standard input has ended: a service that another program starts with a pipe ends "
        "with that program, however that ends.",
        default=False,
    )

    log_format: Literal["json", "console"] = setting("Format of log lines.", default="json")
    log_level: Literal["debug", "info", "warning", "error"] = setting("Lowest severity that is logged.", default="info")
    trace_endpoint: Collector = setting(
        "OpenTelemetry collector that receives a trace of every exchange, as http://host:port or https://host:port "
        "(OTLP over gRPC). An empty value switches tracing off.",
        default="",
    )

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
        has_door = self.token_file is not None or self.identities_file is not None
        guarded = has_door or self.tls_client_ca_file is not None or self.insecure_no_token
        if self.listen_unix_access == "everyone" and not has_door and not self.insecure_no_token:
            raise ValueError(
                "--listen-unix-access everyone lets any user of this machine use the service: "
                "give --token-file or --identities-file, or say --insecure-no-token"
            )
        if address is not None and not address.is_loopback and not guarded:
            raise ValueError(
                f"--listen {address} is reachable from other machines, and anybody there could use the service: "
                "give --token-file, --identities-file or --tls-client-ca-file, or say --insecure-no-token"
            )
        return self

    @property
    def listen_address(self) -> TcpAddress | None:
        """TCP address for Flight; None if it is switched off."""
        return parse_tcp_address(self.listen) if self.listen else None

    @property
    def admin_address(self) -> TcpAddress | None:
        """Address that serves only health; None if it is switched off."""
        return parse_tcp_address(self.admin_listen) if self.admin_listen else None

    @property
    def metrics_address(self) -> TcpAddress | None:
        """Address for metrics; None if they are switched off."""
        return parse_tcp_address(self.metrics_listen) if self.metrics_listen else None

    def with_free_ports(self) -> Self:
        """Return a copy with every port 0 replaced by a free port, so that a restarted process binds the same ports."""
        free = {
            name: str(with_free_port(parse_tcp_address(text)))
            for name in ("listen", "admin_listen", "metrics_listen")
            if (text := getattr(self, name))
        }
        return self.model_copy(update=free)
