# SPDX-License-Identifier: Apache-2.0
"""Listeners of a service: Flight and health over TCP and a Unix socket, health alone for probes, pages over HTTP."""

import asyncio
import os
import resource
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

import grpc
import grpc.aio
import structlog
from prometheus_client import CollectorRegistry, ProcessCollector

from updraft.service.addresses import TcpAddress, parse_tcp_address
from updraft.service.audit import Audit
from updraft.service.authenticator import Authenticator
from updraft.service.exchange import FIRST_MESSAGE_TIMEOUT_SECONDS
from updraft.service.flight_service import Call, FlightService, flight_handler
from updraft.service.health import LIVE, MAX_QUESTION_BYTES, HealthBoard
from updraft.service.identity import STRANGER
from updraft.service.lifecycle import StartError
from updraft.service.metrics import Metrics
from updraft.service.observers import Observers
from updraft.service.security import EXPIRY, EXPIRY_DOC, expiry_timestamp_seconds, server_credentials
from updraft.service.tenants import NO_CAPS, TenantCaps
from updraft.service.web import WebPages, serve_pages

if TYPE_CHECKING:
    from updraft.service.service_settings import ServiceSettings

# Maximum number of open calls on one connection. An executor has one connection, with a call for each of its task
# slots. So a service sees thousands of calls only over many connections.
MAX_CALLS_OF_A_CONNECTION = 1024
# A handshake takes a few round trips. A connection that takes longer than this to finish a handshake is a scan, or an
# attempt to use up sockets.
HANDSHAKE_TIMEOUT_SECONDS = 10.0
# Interval of probes on a silent connection. If the client's machine is gone, the probes free the client's worker within
# two minutes. The probes also keep the connection known to NATs and load balancers, which forget a connection after
# five or more silent minutes.
KEEPALIVE_SECONDS = 60.0
# The server disconnects clients that probe an idle connection more often than this.
_MIN_CLIENT_PING_MILLISECONDS = 10_000
_KEEPALIVE_ANSWER_MILLISECONDS = 20_000
# The server verifies a client's certificate once per connection. So this age limit for connections also limits how long
# a certificate still works after it has expired, or after its authority has been removed. Open calls go on; new calls
# need a new handshake.
_CERTIFIED_CONNECTION_MILLISECONDS = 60_000

# The admin listener needs no token, and a client could hold a connection forever by sending a request now and then. So
# connections end at this age. Open watches then have a minute to move to another connection.
_ADMIN_CONNECTION_MILLISECONDS = 600_000
_ADMIN_GRACE_MILLISECONDS = 60_000

_LAST_WORDS_SECONDS = 2.0
_DOOR_LOOK_SECONDS = 0.5

_UNIX_UMASKS = {"owner": 0o177, "group": 0o117, "everyone": 0o111}

_log = structlog.get_logger(__name__)


class ListenError(StartError):
    """Raised when a service cannot listen on an address; the message names the address."""


class FlightServer(Protocol):
    """gRPC server for Flight: a server of this process, or a server whose connections other processes hold."""

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """Serve these methods."""

    async def listen(self) -> dict[str, str]:
        """Bind the addresses of the settings, and serve; return the bound addresses. Raise ListenError."""

    async def stop(self, grace: float | None) -> None:
        """Accept nothing more; end open calls after `grace` seconds, or at once if `grace` is None."""


class OwnFlightServer:
    """gRPC server for Flight in this process."""

    def __init__(self, settings: "ServiceSettings", *, shares_port: bool = False) -> None:
        """Make the server; raise SecurityError if the certificate cannot be used.

        Args:
            settings: Addresses and certificates.
            shares_port: Whether other processes of this service listen on the same port.
        """
        self._settings = settings
        self._server: grpc.aio.Server = grpc.aio.server(options=_flight_options(settings, shares_port=shares_port))

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """Serve these methods."""
        self._server.add_generic_rpc_handlers(handlers)

    async def listen(self) -> dict[str, str]:
        """Bind the addresses of the settings, and serve; return the bound addresses. Raise ListenError."""
        settings, server, addresses = self._settings, self._server, {}
        if settings.listen_address is not None:
            addresses["listen"] = _bind(server, str(settings.listen_address), self._credentials())
        if settings.listen_unix is not None:
            addresses["listen_unix"] = _bind_unix(server, settings.listen_unix, settings.listen_unix_access)
        await server.start()
        return addresses

    async def stop(self, grace: float | None) -> None:
        """Accept nothing more; end open calls after `grace` seconds, or at once if `grace` is None."""
        await self._server.stop(grace)

    def _credentials(self) -> grpc.ServerCredentials | None:
        settings = self._settings
        if settings.tls_certificate_file is None or settings.tls_key_file is None:
            return None
        return server_credentials(settings.tls_certificate_file, settings.tls_key_file, settings.tls_client_ca_file)


class Listeners:
    """Listeners of one service; `addresses` has the addresses that they are bound to."""

    def __init__(
        self,
        settings: "ServiceSettings",
        service: FlightService,
        health: HealthBoard,
        audit: Audit,
        pages: WebPages = MappingProxyType({}),
        neighbours_token_file: Path | None = None,
        flight_server: FlightServer | None = None,
    ) -> None:
        """Prepare the listeners that the settings ask for.

        Args:
            settings: Addresses, tokens and certificates.
            service: Service offered over Flight.
            health: Board of states offered as grpc.health.v1.
            audit: Audit log; the caller closes it after the listeners.
            pages: Pages to serve in addition to the metrics.
            neighbours_token_file: File of the tokens that requests from this machine need for pages and metrics; None
                if such requests need no token. If the settings require a token from everyone, this file is not used.
            flight_server: Server for Flight; None makes one in this process.
        """
        self.addresses: dict[str, str] = {}
        self._settings = settings
        self._service = service
        self._health = health
        self._audit = audit
        self._pages = pages
        self._neighbours_token_file = neighbours_token_file
        self._stack = AsyncExitStack()
        self._flight: FlightServer | None = flight_server
        self._authenticator: Authenticator | None = None

    def caps_of(self, tenant: str) -> TenantCaps:
        """Return the caps of a tenant; before the listeners have started, there are no caps."""
        return self._authenticator.caps_of(tenant) if self._authenticator is not None else NO_CAPS

    async def start(self, metrics: Metrics) -> None:
        """Start all listeners; raise ListenError or SecurityError. After an error, `close` ends started listeners."""
        allow_all_descriptors()
        self._show_in(metrics)
        self._start_metrics(metrics.registry)
        await self._health.publish([LIVE], serving=True)
        await self._start_admin()
        await self._start_flight()
        self._warn_of_open_doors()

    async def stop_flight(self) -> None:
        """Stop the Flight listeners. Open calls get two seconds to receive their last messages."""
        if self._flight is not None:
            await self._flight.stop(_LAST_WORDS_SECONDS)

    async def close(self) -> None:
        """Stop all listeners."""
        await self._stack.aclose()

    async def _start_flight(self) -> None:
        settings = self._settings
        self._authenticator = authenticator = Authenticator(settings.token_file, settings.identities_file)
        self._stack.callback(asyncio.create_task(_keep_watching(authenticator)).cancel)
        early_reads = self._service.early_reads
        self._flight = server = self._flight or OwnFlightServer(settings)
        self._stack.push_async_callback(server.stop, None)
        self._health.add_to(server, lambda context: early_reads.read(Call(context, STRANGER)))
        handler = flight_handler(
            self._service, authenticator, self._audit, request_timeout_seconds=FIRST_MESSAGE_TIMEOUT_SECONDS
        )
        server.add_generic_rpc_handlers((handler,))
        self.addresses.update(await server.listen())

    async def _start_admin(self) -> None:
        if self._settings.admin_address is None:
            return
        server = grpc.aio.server(options=_admin_options())
        self._stack.push_async_callback(server.stop, None)
        self._health.add_to(server, lambda context: Call(context, STRANGER).read())
        self.addresses["admin_listen"] = _bind(server, str(self._settings.admin_address), None)
        await server.start()

    def _show_in(self, metrics: Metrics) -> None:
        """Add metrics of the process and of the service's callers."""
        ProcessCollector(registry=metrics.registry)
        refused = "Calls without valid credentials: no token, a wrong one or an expired one."
        metrics.count_by_label("updraft_calls_refused", refused, "reason", self._refused)
        certificate = self._settings.tls_certificate_file
        if certificate is not None:
            metrics.watch(EXPIRY, EXPIRY_DOC, partial(expiry_timestamp_seconds, certificate))

    def _refused(self) -> dict[str, int]:
        return {"unauthenticated": self._authenticator.refused if self._authenticator is not None else 0}

    def _start_metrics(self, registry: CollectorRegistry) -> None:
        address = self._settings.metrics_address
        if address is None:
            return
        try:
            observers = Observers(self._settings.metrics_token_file, self._neighbours_token_file)
            bound, stop = serve_pages(address, registry, self._pages, observers)
        except OSError as error:
            raise ListenError(f"cannot serve metrics at {address}: {error.strerror}") from error
        self._stack.callback(stop)
        self.addresses["metrics_listen"] = str(bound)

    def _warn_of_open_doors(self) -> None:
        settings = self._settings
        address = settings.listen_address
        if address is None or address.is_loopback:
            return
        if settings.insecure_no_token:
            _log.warning("anybody who reaches this address can use this service", listen=str(address))
        has_tokens = settings.token_file is not None or settings.identities_file is not None
        if has_tokens and settings.tls_certificate_file is None:
            _log.warning("tokens cross the network in plain text: give --tls-certificate-file", listen=str(address))


async def _keep_watching(authenticator: Authenticator) -> None:
    """Check the credential files even while the service is idle, so that the log reports an unusable file promptly."""
    while True:
        await asyncio.sleep(_DOOR_LOOK_SECONDS)
        authenticator.refresh()


def _flight_options(settings: "ServiceSettings", *, shares_port: bool) -> Sequence[tuple[str, int]]:
    certified = (("grpc.max_connection_age_ms", _CERTIFIED_CONNECTION_MILLISECONDS),)
    # Twice the limit, so that a message somewhat beyond the limit is refused with our error, which names both sizes,
    # instead of gRPC's error.
    options = _channel_options(2 * settings.max_message_bytes, shares_port=shares_port)
    return (*options, *(certified if settings.tls_client_ca_file is not None else ()))


def _admin_options() -> Sequence[tuple[str, int]]:
    return (
        *_channel_options(MAX_QUESTION_BYTES),
        ("grpc.max_connection_age_ms", _ADMIN_CONNECTION_MILLISECONDS),
        ("grpc.max_connection_age_grace_ms", _ADMIN_GRACE_MILLISECONDS),
    )


def _channel_options(max_receive_bytes: int, *, shares_port: bool = False) -> Sequence[tuple[str, int]]:
    return (
        ("grpc.max_receive_message_length", max_receive_bytes),
        ("grpc.max_send_message_length", -1),
        # Allow no compression: a compressed message could grow beyond the limit before its size is checked.
        ("grpc.compression_enabled_algorithms_bitset", 1),
        ("grpc.max_allowed_incoming_connections", most_connections()),
        ("grpc.max_concurrent_streams", MAX_CALLS_OF_A_CONNECTION),
        ("grpc.server_handshake_timeout_ms", int(HANDSHAKE_TIMEOUT_SECONDS * 1000)),
        ("grpc.keepalive_time_ms", int(KEEPALIVE_SECONDS * 1000)),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_ANSWER_MILLISECONDS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", _MIN_CLIENT_PING_MILLISECONDS),
        # Without SO_REUSEPORT, a second service on the same port fails to start instead of taking half of the calls.
        ("grpc.so_reuseport", int(shares_port)),
    )


def _bind(server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None) -> str:
    try:
        port = (
            server.add_insecure_port(address) if credentials is None else server.add_secure_port(address, credentials)
        )
    except RuntimeError as error:
        failure = _bind_failure(parse_tcp_address(address)) or "gRPC refused the address"
        raise ListenError(f"cannot listen on {address}: {failure}") from error
    return f"{address.rpartition(':')[0]}:{port}"


def check_free(address: TcpAddress) -> None:
    """Raise ListenError if another service listens on the address. Processes that share a port need this check."""
    if failure := _bind_failure(address):
        raise ListenError(f"cannot listen on {address}: {failure}")


def _bind_failure(address: TcpAddress) -> str:
    """Try to bind the address and return why that fails, or "". gRPC gives the reason only in its own log."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
    except OSError as error:
        return f"{error.strerror}: choose another address or port"
    return ""


def _bind_unix(server: grpc.aio.Server, path: Path, access: str) -> str:
    # The umask restricts the socket as it is created. Other users could connect before a later chmod.
    previous = os.umask(_UNIX_UMASKS[access])
    try:
        server.add_insecure_port(f"unix:{path.absolute()}")
    except RuntimeError as error:
        raise ListenError(
            f"cannot listen on {path}: does its directory exist, may this user write there, is the path short enough?"
        ) from error
    finally:
        os.umask(previous)
    return f"unix://{path.absolute()}"


# Flight over TCP, Flight over a Unix socket, and health may each use a quarter of the descriptors. The last quarter is
# for files, workers and pages.
_LISTENERS = 3
# Limit assumed if the kernel sets none; gRPC's option has only 32 bits.
_UNLIMITED = 1 << 20


def allow_all_descriptors() -> None:
    """Raise this process's soft limit on open descriptors to its hard limit.

    The usual soft limit of 1024 exists for programs that use select, and a service does not use select. An unknown
    client could open 1024 connections within seconds. The service could then neither store an artifact nor take a
    worker.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The kernel refuses if fs.nr_open was lowered meanwhile: the service then starts with its current limit.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def most_connections() -> int:
    """Return how many connections one gRPC listener may have, so that the listeners leave descriptors for other uses.

    gRPC closes further connections at once. Without this limit, connections could take every descriptor, and the
    service would accept no client until some of them close.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (_UNLIMITED if limit == resource.RLIM_INFINITY else min(limit, _UNLIMITED)) // (_LISTENERS + 1)
