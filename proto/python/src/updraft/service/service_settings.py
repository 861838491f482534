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

    The default ports are a pool's ports. Another service restates the addresses (`updraft.service.settings.restated`).
    """

    listen: Address = setting(
        "TCP address for Arrow Flight. Set it to 0.0.0.0 and a port so that other machines can connect. Port 0 lets "
        "the system choose; an empty value switches TCP off.",
        default="127.0.0.1:8815",
        common=True,
    )
    listen_unix: Path | None = setting(
        "Path of a Unix socket for Arrow Flight. Set it for clients on the same machine, with TCP or instead of it.",
        default=None,
    )
    listen_unix_access: Literal["owner", "group", "everyone"] = setting(
        "Users of this machine who may connect to the Unix socket. Set it to `group` or `everyone` if clients run as "
        "other users.",
        default="owner",
    )
    admin_listen: Address = setting(
        "Address that serves only grpc.health.v1, so that probes succeed however busy the main address is. Set it to "
        "an address that your probes reach. An empty value switches it off.",
        default="127.0.0.1:8825",
    )
    metrics_listen: Address = setting(
        "Address for Prometheus metrics at /metrics and the service's state at /status.json; a pool also serves a "
        "page for people at /status. Set it to an address that Prometheus reaches. An empty value switches all of "
        "them off.",
        default="127.0.0.1:9825",
        common=True,
    )
    metrics_token_file: Path | None = setting(
        "File with the bearer tokens for metrics and status, in the format of --token-file; in a browser, enter a "
        "token as the password, with any user name. Set it if others can reach --metrics-listen. Without it, requests "
        "from other machines need no token. Requests from this machine need one only if the service is a pool that "
        "runs session functions, because such functions could send requests too. The pool then makes a token and logs "
        "the name of its file.",
        default=None,
    )
    ready_file: Path | None = setting(
        "JSON file that the service writes once it is ready, with its addresses and process ids. Set it for scripts "
        "that start a service on port 0.",
        default=None,
    )

    token_file: Path | None = setting(
        "File with the bearer tokens that clients may present, one per line; # starts a comment. Set it, or "
        "--identities-file, before other machines may connect. The service reads it again when it changes. If the "
        "file is missing or unusable for two seconds, no token is valid until it can be read again.",
        default=None,
        common=True,
    )
    identities_file: Path | None = setting(
        "TOML file with the identities of clients: SHA-256 digests of their tokens and names in their certificates, "
        "with the tenant and the scopes (call, session, write, admin) of each; issuers of JSON Web Tokens; and caps "
        "for what each tenant may take. Set it if several tenants share the service. It holds no tokens, so it may be "
        "stored with other configuration; anyone who can change it decides who may do what. The service reads it "
        "again when it changes. Clients with a token of --token-file have the scopes call, session and write, and "
        "name their tenant themselves.",
        default=None,
    )
    insecure_no_token: bool = setting(
        "Accept clients without a token or certificate on addresses that other machines can reach. Set it only where "
        "the network keeps everyone else out.",
        default=False,
    )
    tls_certificate_file: Path | None = setting(
        "PEM file with the server's certificate chain; it switches TLS on. Set it, with --tls-key-file, if tokens or "
        "data cross a network. The service reads it again when it changes.",
        default=None,
        common=True,
    )
    tls_key_file: Path | None = setting(
        "PEM file with the private key of the server's certificate.", default=None, common=True
    )
    tls_client_ca_file: Path | None = setting(
        "PEM file with the authorities whose client certificates are accepted; it switches mutual TLS on. Set it to "
        "identify clients by certificates.",
        default=None,
    )

    audit_file: Path | None = setting(
        "File to which the service appends a JSON line before each exchange, at its end, and for each refusal: who, "
        "which function or file, from which address, and the outcome. Set it if you have to prove who ran what. `-` "
        "is standard output. If a log collector renames the file, the service starts a new one.",
        default=None,
    )
    audit_failure: Literal["refuse", "count"] = setting(
        "What happens while --audit-file cannot be written. refuse: the service refuses exchanges, so that clients "
        "try another pod, and keeps the records. count: it accepts exchanges, drops the records and counts them. Set "
        "it to count if work matters more than a complete record.",
        default="refuse",
    )

    allow_remote_drain: bool = setting(
        'Let every client that may connect drain the service, with DoAction("updraft.drain"). Set it if an operator '
        "without access to the machine has to drain it. SIGTERM always drains it.",
        default=False,
    )

    max_message_bytes: int = setting(
        "Maximum size of a Flight message. Raise it if an error names it: for clients that cannot send a larger batch "
        "in parts, such as pyarrow.flight, or for functions that carry more data. Updraft's own clients send larger "
        "batches in parts. Spark sessions need at least 34 MiB.",
        default=64 * MIB,
        unit="bytes",
        ge=MIB,
        le=1024 * MIB,
    )
    client_silence_seconds: float = setting(
        "End an exchange whose client has been silent for this long while the service waits for it: no data, no "
        "keepalive, nothing read. Raise it for clients of your own that pause for longer; Updraft's clients send a "
        "keepalive every 30 seconds. 0 sets no limit.",
        default=600.0,
        unit="seconds",
        ge=0,
    )
    drain_timeout_seconds: float = setting(
        "Time for running exchanges to finish after SIGTERM; the service then ends them and tells their clients to "
        "try another pool or writer. Raise it if tasks run for longer, lower it if machines are taken away on short "
        "notice.",
        default=60.0,
        unit="seconds",
        ge=0,
        common=True,
    )

    end_with_stdin: bool = setting(
        "End as after SIGTERM once standard input has ended. Set it if another program starts the service with a "
        "pipe: the service then ends even if that program is killed.",
        default=False,
    )

    log_format: Literal["json", "console"] = setting(
        "Format of log lines. Set it to `console` to read them in a terminal.", default="json"
    )
    log_level: Literal["debug", "info", "warning", "error"] = setting(
        "Lowest severity that is logged. Set it to `debug` to look for a fault.", default="info", common=True
    )
    trace_endpoint: Collector = setting(
        "OpenTelemetry collector that receives a trace of every exchange: http://host:port or https://host:port (OTLP "
        "over gRPC). Set it to see where an exchange spends its time. An empty value switches tracing off.",
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
        """Return a copy with free ports in place of port 0, so that a restarted process binds the same ports."""
        free = {
            name: str(with_free_port(parse_tcp_address(text)))
            for name in ("listen", "admin_listen", "metrics_listen")
            if (text := getattr(self, name))
        }
        return self.model_copy(update=free)
