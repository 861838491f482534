# SPDX-License-Identifier: Apache-2.0
"""Flight service of a pool, which lists functions, reports status and drains. `exchange` serves its exchanges."""

import functools
import json
from collections.abc import Callable, Iterable
from importlib.metadata import version
from typing import Any

from updraft.errors import FunctionNotFoundError
from updraft.protocol import PROTOCOL_VERSION
from updraft.service.exchange import parse_message
from updraft.service.flight_service import Action, Call, FlightService
from updraft.service.identity import Identity, Scope
from updraft.service.lifecycle import Lifecycle, Phase
from updraft.v1.control_pb2 import FunctionDescription, PoolState, PoolStatus, SandboxLayer
from updraft.v1.exchange_pb2 import SignedStatement
from updraft_server.front.exchange import Exchanges
from updraft_server.front.request.capabilities import Capabilities
from updraft_server.front.request.request import SERVICE, is_databend, path_parts
from updraft_server.front.status.exchange_views import exchange_views
from updraft_server.front.status.output_log import OutputLog
from updraft_server.front.status.profiler import Profiler
from updraft_server.pool.interface import WorkerPool

POOL_STATUS_ACTION = "updraft.pool_status"
_STATUS_DOC = "Versions, state, workers, queue and functions of this pool, as updraft.v1.PoolStatus."
CHECK_SIGNATURE_ACTION = "updraft.check_signature"
_SIGNATURE_DOC = "Signer of a SignedStatement, whatever it is about: JSON, or the reason why it is not valid."
WORKER_STACK_ACTION = "updraft.worker_stack"
_STACK_DOC = "Python stack of the worker with this id, or of every busy worker: JSON, from worker ids to texts."
_NO_STACKS = (
    "clients may not read the stacks of this pool's workers, which name the code of every tenant: start the pool with "
    "--allow-remote-stacks, or call as an identity with the scope admin"
)
ARROW_UDF_VERSION_ACTION = "protocol_version"
_ARROW_UDF_VERSION = b"\x02"
_ARROW_UDF_DOC = "Version of arrow-udf's protocol, as RisingWave asks for it: one byte."
_DRAIN_DOC = "Finish running exchanges, accept no new ones, then stop: as on SIGTERM."

_STATES = {
    Phase.STARTING: PoolState.POOL_STATE_STARTING,
    Phase.READY: PoolState.POOL_STATE_READY,
    Phase.DRAINING: PoolState.POOL_STATE_DRAINING,
    Phase.STOPPED: PoolState.POOL_STATE_DRAINING,
}


class PoolService(FlightService):
    """Flight service of one pool."""

    def __init__(self, exchanges: Exchanges, pool: WorkerPool, lifecycle: Lifecycle, output: OutputLog) -> None:
        self._exchanges = exchanges
        self._pool = pool
        settings = exchanges.settings
        status = Action(POOL_STATUS_ACTION, _STATUS_DOC, self._encoded_status)
        refusal = "" if settings.allow_remote_stacks else _NO_STACKS
        stack = Action(WORKER_STACK_ACTION, _STACK_DOC, self._stacks, refusal, is_recorded=True)
        signature = Action(CHECK_SIGNATURE_ACTION, _SIGNATURE_DOC, self._signer)
        profiler = Profiler(exchanges.activity, pool.stack, lambda: pool.model_usage)
        views = exchange_views(output, profiler, no_stacks=refusal)
        arrow_udf = Action(ARROW_UDF_VERSION_ACTION, _ARROW_UDF_DOC, self._arrow_udf_version)
        super().__init__(
            SERVICE,
            [status, stack, *views, *([signature] if exchanges.signatures.are_looked_at else []), arrow_udf],
            lifecycle,
            exchanges.early_reads,
            drain_doc=_DRAIN_DOC,
            allow_remote_drain=settings.allow_remote_drain,
        )

    async def do_exchange(self, call: Call) -> None:
        """Serve one exchange."""
        await self._exchanges.serve(call)

    def list_flights(self) -> Iterable[Any]:
        """Return a FlightInfo for each registered function."""
        shown = self._exchanges.functions.shown(self._capabilities().functions)
        return [_flight_info(function, numbered=True) for function in shown]

    def flight_info(self, descriptor: Any, header: Callable[[str], str]) -> Any:
        """Return the FlightInfo of the function that a PATH descriptor names; raise UpdraftError."""
        name, version = path_parts([part.decode("utf-8", "replace") for part in descriptor.path or ()])
        (found,) = self._exchanges.functions.shown([self._capabilities().find(name, version)])
        return _flight_info(found, numbered=not is_databend(header))

    def status(self) -> PoolStatus:
        """Return the current status of the pool."""
        capabilities = self._capabilities()
        return PoolStatus(
            protocol_version=PROTOCOL_VERSION,
            server_version=_server_version(),
            python_version=capabilities.python_version,
            pyspark_version=capabilities.pyspark_version,
            session_functions_allowed=capabilities.session_functions_allowed,
            signatures_required=capabilities.signatures_required,
            state=_STATES[self._lifecycle.phase],
            workers_idle=self._pool.quiet,
            workers_busy=self._pool.computing,
            workers_starting=self._pool.starting,
            exchanges_waiting=self._exchanges.admission.waiting,
            exchanges_waiting_limit=self._exchanges.admission.queue_limit,
            functions=self._exchanges.functions.shown(capabilities.functions),
            reload_fault=self._pool.reload_fault,
            sandbox=[SandboxLayer(name=layer.name, lack=layer.lack) for layer in self._pool.sandbox],
        )

    def _capabilities(self) -> Capabilities:
        return Capabilities.of(self._pool, self._exchanges.settings.session_functions)

    async def _stacks(self, body: bytes, _identity: Identity) -> bytes:
        """Return as JSON the stack of the worker that the body names, or of all busy workers if it names no worker."""
        name = body.decode("utf-8", "replace")
        busy = [worker.worker for worker in self._pool.workers if worker.state == "busy"]
        stacks = {worker: await self._pool.stack(worker) for worker in ([name] if name else busy)}
        if name and stacks[name] is None:
            raise FunctionNotFoundError(f"no worker has the id {name!r}: busy are {', '.join(busy) or 'none'}")
        return json.dumps({worker: stack for worker, stack in stacks.items() if stack is not None}).encode()

    async def _signer(self, body: bytes, identity: Identity) -> bytes:
        identity.require(Scope.SESSION, "run session functions")
        signed = parse_message(SignedStatement, body, "the body is not a SignedStatement")
        return json.dumps({"signer": self._exchanges.signatures.signer_of(signed, identity)}).encode()

    async def _arrow_udf_version(self, _body: bytes, _identity: Identity) -> bytes:
        return _ARROW_UDF_VERSION

    async def _encoded_status(self, _body: bytes, _identity: Identity) -> bytes:
        return self.status().SerializeToString()


@functools.cache
def _server_version() -> str:
    return version("updraft-server")


def _flight_info(function: FunctionDescription, *, numbered: bool) -> Any:
    # These modules load slowly, so import them on first use.
    from pyarrow import flight

    from updraft.plain_flight import argument_count, flight_schema

    path = [function.name, function.version] if function.version else [function.name]
    schema = flight_schema(function, numbered=numbered)
    return flight.FlightInfo(
        schema,
        flight.FlightDescriptor.for_path(*path),
        [],
        -1 if schema is None else argument_count(schema),
        -1,
        app_metadata=function.SerializeToString(),
    )
