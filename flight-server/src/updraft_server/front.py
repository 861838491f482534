# SPDX-License-Identifier: Apache-2.0
"""The front process: wires the listeners to the pool and lives through start, drain and stop.

Started by `updraft_server.supervisor` as `python -m updraft_server.front`; its settings are JSON in the environment.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc.aio
import structlog

from updraft.errors import PoolUnavailableError
from updraft.flight_service import FLIGHT_SERVICE_NAME, Call, FlightService, flight_handler
from updraft.health import WHOLE_SERVICE, HealthBoard
from updraft.lifecycle import Event, Lifecycle, Phase
from updraft.security import BearerTokens, SecurityError, TokenInterceptor, server_credentials
from updraft.telemetry import configure_logging, serve_metrics
from updraft_server.admission import Admission, AdmissionLimits
from updraft_server.allocator import retain_freed_memory
from updraft_server.control import Control
from updraft_server.exchange import ExchangeLimits, Exchanges
from updraft_server.metrics import FrontMetrics
from updraft_server.opening import Offer
from updraft_server.pool import Pool, PoolError, PoolSettings, WorkerOutput
from updraft_server.ready_file import ReadyFile
from updraft_server.settings import ServeSettings

SETTINGS_VARIABLE = "UPDRAFT_FRONT_SETTINGS"
ZYGOTE_SOCKET_VARIABLE = "UPDRAFT_FRONT_ZYGOTE_SOCKET"

_log = structlog.get_logger(__name__)


class FrontError(Exception):
    """Raised when the front cannot start; the message says what to change."""


class PoolFlightService(FlightService):
    """Flight, as a pool answers it: exchanges here, everything else in `Control`."""

    def __init__(self, exchanges: Exchanges, control: Control) -> None:
        self._exchanges = exchanges
        self._control = control

    async def do_exchange(self, call: Call) -> None:
        """Serve one exchange."""
        await self._exchanges.serve(call)

    def list_flights(self) -> Iterable[Any]:
        """One FlightInfo for each registered function."""
        return self._control.list_flights()

    def flight_info(self, descriptor: Any) -> Any:
        """The FlightInfo of one function."""
        return self._control.flight_info(descriptor)

    def list_actions(self) -> Iterable[tuple[str, str]]:
        """Name and description of every action."""
        return self._control.list_actions()

    async def do_action(self, name: str, body: bytes) -> bytes:
        """Run an action."""
        return await self._control.do_action(name, body)


class Front:
    """One front: a pool, its queue, its listeners."""

    def __init__(self, settings: ServeSettings, pool: Pool) -> None:
        self.lifecycle = Lifecycle()
        self._settings = settings
        self._pool = pool
        self.metrics = FrontMetrics()
        self._health = HealthBoard()
        self.admission = Admission(pool, AdmissionLimits(settings.queue_limit, settings.retry_after_milliseconds))
        self._health_changed = asyncio.Event()
        self._health_changed.set()
        self._addresses: dict[str, str] = {}
        exchanges = Exchanges(self.admission, self._offer_once_started, _exchange_limits(settings), self.metrics)
        control = Control(pool, self.admission, self._offer, self.lifecycle)
        self._handler = flight_handler(PoolFlightService(exchanges, control))
        self._watch_pool()

    async def run(self) -> None:
        """Serve until a drain has ended; raises FrontError when a listener or the pool cannot start."""
        async with AsyncExitStack() as stack:
            publisher = asyncio.create_task(self._publish_health())
            stack.callback(publisher.cancel)
            self._start_metrics(stack)
            admin = await self._start_admin()
            server = await self._start_flight()
            await self._start_pool()
            stack.push_async_callback(self._pool.close, 0.0)
            self.lifecycle.handle(Event.STARTED)
            self._announce()
            await self.lifecycle.drain_requested()
            await self._drain(server)
            if admin is not None:
                await admin.stop(None)

    async def _drain(self, server: grpc.aio.Server) -> None:
        _log.info("draining", running=self._pool.busy, waiting=self.admission.waiting)
        self.admission.drain()
        await self._publish_now()
        # The listener stays open until what runs has ended: who comes is told to go elsewhere, probes are answered.
        try:
            async with asyncio.timeout(self._settings.drain_timeout_seconds):
                await self._idle()
        except TimeoutError:
            _log.warning("exchanges did not finish within the drain timeout", running=self._pool.busy)
        await server.stop(0.0)
        self.lifecycle.handle(Event.DRAINED)
        _log.info("drained")

    async def _idle(self) -> None:
        changed = asyncio.Event()
        unsubscribe = self._pool.subscribe(changed.set)
        try:
            while self._pool.busy > 0:
                changed.clear()
                await changed.wait()
        finally:
            unsubscribe()

    def _offer(self) -> Offer:
        return Offer(
            functions=self._pool.functions,
            session_functions_allowed=self._settings.allow_session_functions,
            python_version=self._pool.python_version,
            pyspark_version=self._pool.pyspark_version,
        )

    def _offer_once_started(self) -> Offer:
        # Before the pool has told its functions, every name would look unknown, which is an error for good.
        if self.lifecycle.phase is Phase.STARTING:
            raise PoolUnavailableError("the pool is starting: try again")
        return self._offer()

    async def _start_pool(self) -> None:
        try:
            await self._pool.start()
        except PoolError as error:
            raise FrontError(f"the pool cannot start: {error}") from error

    async def _start_flight(self) -> grpc.aio.Server:
        settings = self._settings
        interceptors = []
        if settings.token_file is not None:
            interceptors.append(TokenInterceptor(BearerTokens(settings.token_file)))
        server = grpc.aio.server(interceptors=interceptors, options=_channel_options(settings))
        server.add_generic_rpc_handlers((self._handler,))
        self._health.add_to(server)
        if settings.listen_address is not None:
            self._addresses["listen"] = _bind(server, str(settings.listen_address), self._credentials())
        if settings.listen_unix is not None:
            self._addresses["listen_unix"] = _bind(server, f"unix:{settings.listen_unix.absolute()}", None)
        self._warn_of_open_doors()
        await server.start()
        return server

    def _credentials(self) -> grpc.ServerCredentials | None:
        settings = self._settings
        if settings.tls_certificate_file is None or settings.tls_key_file is None:
            return None
        return server_credentials(settings.tls_certificate_file, settings.tls_key_file, settings.tls_client_ca_file)

    def _warn_of_open_doors(self) -> None:
        settings = self._settings
        address = settings.listen_address
        if address is None or address.is_loopback:
            return
        if settings.insecure_no_token:
            _log.warning("anybody who reaches this address can run functions here", listen=str(address))
        if settings.token_file is not None and settings.tls_certificate_file is None:
            _log.warning("tokens cross the network in plain text: give --tls-certificate-file", listen=str(address))

    async def _start_admin(self) -> grpc.aio.Server | None:
        if self._settings.admin_address is None:
            return None
        server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        self._health.add_to(server)
        self._addresses["admin_listen"] = _bind(server, str(self._settings.admin_address), None)
        await server.start()
        return server

    def _start_metrics(self, stack: AsyncExitStack) -> None:
        address = self._settings.metrics_address
        if address is None:
            return
        try:
            bound, stop = serve_metrics(address, self.metrics.registry)
        except OSError as error:
            raise FrontError(f"cannot serve metrics at {address}: {error.strerror}") from error
        stack.callback(stop)
        self._addresses["metrics_listen"] = str(bound)

    def _watch_pool(self) -> None:
        pool, metrics = self._pool, self.metrics
        pool.subscribe(self._health_changed.set)
        self.lifecycle.subscribe(lambda _phase: self._health_changed.set())
        metrics.watch_by_label(
            "updraft_workers",
            "Workers of the pool, by state.",
            "state",
            {"idle": lambda: pool.idle, "busy": lambda: pool.busy, "starting": lambda: pool.starting},
        )
        metrics.watch("updraft_exchanges_waiting", "Exchanges in the queue.", lambda: self.admission.waiting)

    async def _publish_health(self) -> None:
        while True:
            await self._health_changed.wait()
            self._health_changed.clear()
            await self._publish_now()

    async def _publish_now(self) -> None:
        serving = self.lifecycle.phase is Phase.READY and self._pool.idle + self._pool.busy > 0
        functions = [f"updraft.function/{function.name}" for function in self._pool.functions]
        await self._health.publish([WHOLE_SERVICE, FLIGHT_SERVICE_NAME, *functions], serving=serving)

    def _announce(self) -> None:
        functions = [function.name for function in self._pool.functions]
        _log.info("pool is ready", **self._addresses, front=os.getpid(), functions=functions)
        if self._settings.ready_file is not None:
            ready_file = ReadyFile(self._settings.ready_file, self._addresses, self._pool)
            ready_file.update()
            self._pool.subscribe(ready_file.update)


def _exchange_limits(settings: ServeSettings) -> ExchangeLimits:
    return ExchangeLimits(
        max_message_bytes=settings.max_message_bytes,
        first_message_timeout_seconds=settings.first_message_timeout_seconds,
        default_deadline_seconds=settings.default_deadline_seconds,
        max_deadline_seconds=settings.max_deadline_seconds,
    )


def _channel_options(settings: ServeSettings) -> Sequence[tuple[str, int]]:
    return (
        # Twice the limit, so that a message beyond it gets our error with both numbers and not gRPC's.
        ("grpc.max_receive_message_length", 2 * settings.max_message_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_concurrent_streams", settings.max_exchanges),
        ("grpc.server_handshake_timeout_ms", int(settings.handshake_timeout_seconds * 1000)),
        ("grpc.keepalive_time_ms", int(settings.keepalive_seconds * 1000)),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.keepalive_permit_without_calls", 1),
        # A second pool on the same port must fail to start, not take half of the calls.
        ("grpc.so_reuseport", 0),
    )


def _bind(server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None) -> str:
    try:
        port = (
            server.add_insecure_port(address) if credentials is None else server.add_secure_port(address, credentials)
        )
    except RuntimeError as error:
        raise FrontError(f"cannot listen on {address}: {error}") from error
    return address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{port}"


def _log_worker_output(output: WorkerOutput) -> None:
    _log.info("worker output", worker=output.pid, line=output.line, **output.context)


async def _serve(settings: ServeSettings, zygote_socket: Path) -> None:
    pool = Pool(PoolSettings(workers=settings.workers, zygote_socket=zygote_socket), _log_worker_output)
    front = Front(settings, pool)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, front.lifecycle.handle, Event.DRAIN_REQUESTED)
    await front.run()


def main() -> None:
    """Run the front in this process; exits with 1 and one line when it cannot start."""
    import uvloop

    retain_freed_memory()
    settings = ServeSettings.model_validate_json(os.environ[SETTINGS_VARIABLE])
    configure_logging(log_format=settings.log_format, level=settings.log_level, process="front")
    try:
        uvloop.run(_serve(settings, Path(os.environ[ZYGOTE_SOCKET_VARIABLE])))
    except (FrontError, SecurityError) as error:
        _log.error("the front cannot start", reason=str(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
