# SPDX-License-Identifier: Apache-2.0
"""Connection to a pool or a writer: health, state, functions, drain, and the round trip of a batch or a file."""

import json
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, Self

import grpc
import pyarrow as pa
import pyarrow.parquet as parquet
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pyarrow import flight

from updraft.client.credentials import Credentials
from updraft.client.endpoint import Endpoint, Transport
from updraft.client.writer import WriterClient
from updraft.service.flight_service import DRAIN_ACTION, FLIGHT_SERVICE_NAME, WHOAMI_ACTION
from updraft.v1.control_pb2 import FunctionDescription, PoolState, PoolStatus
from updraft.v1.exchange_pb2 import SignedStatement

POOL_STATUS_ACTION = "updraft.pool_status"
CHECK_SIGNATURE_ACTION = "updraft.check_signature"
WORKER_STACK_ACTION = "updraft.worker_stack"
WRITER_STATUS_ACTION = "updraft.writer_status"

_FUNCTION_FIELDS = ("name", "version", "doc", "owner", "fault", "fault_is_final")
_STATES = {PoolState.POOL_STATE_STARTING: "starting", PoolState.POOL_STATE_READY: "ready"}

Status = dict[str, Any]


@cache
def _proof() -> pa.RecordBatch:
    """Return the batch for a round trip. It is made on first use, because PyArrow imports pandas to make it."""
    return pa.record_batch({"_0": pa.array(range(1000), pa.int64())})


class Caller(NamedTuple):
    """Client, as the service sees it."""

    identity: str
    tenant: str | None
    """Tenant of the client; None if the client names its tenant itself."""
    scopes: Sequence[str]
    roots: Sequence[str]
    expires_seconds: float | None
    """Expiry of the client's credential in seconds since 1970; None if the credential does not expire."""


class Service:
    """Connection to a service. A failed call raises pyarrow's FlightError or grpc.RpcError within `timeout_seconds`."""

    def __init__(self, endpoint: Endpoint, credentials: Credentials, timeout_seconds: float) -> None:
        self._credentials = credentials
        self._timeout_seconds = timeout_seconds
        self._target = endpoint.target
        self._secrets: grpc.ChannelCredentials | None = None
        trust: dict[str, Any] = {}
        if endpoint.transport is Transport.TLS:
            self._secrets = credentials.grpc_credentials()
            trust = {"tls_root_certs": credentials.roots}
            if credentials.certificate_file is not None and credentials.key_file is not None:
                trust["cert_chain"] = credentials.certificate_file.read_bytes()
                trust["private_key"] = credentials.key_file.read_bytes()
        self._flight = flight.FlightClient(str(endpoint), **trust)
        headers = [(name.encode(), value.encode()) for name, value in credentials.headers]
        self._options = flight.FlightCallOptions(timeout=timeout_seconds, headers=headers)

    def health(self) -> str:
        """Return the health of the Flight service, as grpc.health.v1 reports it, in lower case; needs no token."""
        channel = (
            grpc.insecure_channel(self._target)
            if self._secrets is None
            else grpc.secure_channel(self._target, self._secrets)
        )
        with channel:
            request = health_pb2.HealthCheckRequest(service=FLIGHT_SERVICE_NAME)
            answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=self._timeout_seconds)
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)).lower().replace("_", " ")

    def actions(self) -> set[str]:
        """Return the names of the service's actions, which show whether it is a pool or a writer."""
        return {action.type for action in self._flight.list_actions(self._options)}

    def whoami(self) -> Caller | None:
        """Return this client as the service sees it, or None if the service is too old to report it."""
        if WHOAMI_ACTION not in self.actions():
            return None
        found = json.loads(self._act(WHOAMI_ACTION))
        return Caller(found["identity"], found["tenant"], found["scopes"], found["roots"], found["expires"])

    def status(self) -> Status:
        """Return the state of a pool or of a writer, in the form of `/status.json`."""
        if WRITER_STATUS_ACTION in self.actions():
            return dict(json.loads(self._act(WRITER_STATUS_ACTION)))
        return _as_report(PoolStatus.FromString(self._act(POOL_STATUS_ACTION)))

    def functions(self) -> list[FunctionDescription]:
        """Return a pool's descriptions of its registered functions; a writer has none."""
        if POOL_STATUS_ACTION not in self.actions():
            return []
        return list(PoolStatus.FromString(self._act(POOL_STATUS_ACTION)).functions)

    def signer_of(self, signed: SignedStatement) -> str:
        """Ask a pool who signed a statement; raises FlightUnauthorizedError with the reason if the pool refuses it."""
        return str(json.loads(self._act(CHECK_SIGNATURE_ACTION, signed.SerializeToString()))["signer"])

    def drain(self) -> None:
        """Make the service finish its work and accept nothing new; raises FlightUnauthorizedError if it refuses."""
        self._act(DRAIN_ACTION)

    def stacks(self, worker: str) -> dict[str, str]:
        """Return Python stacks by worker id: the stacks of one worker, or of every busy worker.

        Raises FlightUnauthorizedError if the pool refuses.
        """
        return dict(json.loads(self._act(WORKER_STACK_ACTION, worker.encode())))

    def send_a_batch(self) -> int:
        """Send a batch to a worker and return the number of rows that came back; raises ValueError if rows changed."""
        writer, reader = self._flight.do_exchange(flight.FlightDescriptor.for_path("echo"), self._options)
        with writer:
            writer.begin(_proof().schema)
            writer.write_batch(_proof())
            writer.done_writing()
            returned = reader.read_all()
        return _proven(returned)

    def write_a_file(self) -> int:
        """Let the writer make and return a Parquet file; return its number of rows. Raises ValueError and UpdraftError.

        ValueError means that the rows in the file changed.
        """
        # Keep the file in Arrow's memory and read it on this thread only. Arrow's own threads may free a file late, and
        # freeing Python's memory after Python has ended would crash the process.
        made = pa.BufferOutputStream()
        client = WriterClient(
            self._target,
            token=self._credentials.token,
            credentials=self._secrets,
            timeout_seconds=self._timeout_seconds,
        )
        with client, client.create("updraft-doctor.parquet", _proof().schema, into=made) as file:
            file.write(pa.table(_proof()))
        return _proven(parquet.ParquetFile(pa.BufferReader(made.getvalue())).read(use_threads=False))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._flight.close()

    def _act(self, action: str, body: bytes = b"") -> bytes:
        (result,) = self._flight.do_action(flight.Action(action, body), self._options)
        return bytes(result.body.to_pybytes())


def _as_report(status: PoolStatus) -> Status:
    """Return a pool's status in the form of its `/status.json`."""
    return {
        "state": _STATES.get(status.state, "draining"),
        "workers": {
            "idle": status.workers_idle,
            "busy": status.workers_busy,
            "starting": status.workers_starting,
        },
        "queue": {"waiting": status.exchanges_waiting, "limit": status.exchanges_waiting_limit},
        "versions": {
            "server": status.server_version,
            "protocol": status.protocol_version,
            "python": status.python_version,
            "pyspark": status.pyspark_version,
        },
        "session_functions_allowed": status.session_functions_allowed,
        "signatures_required": status.signatures_required,
        "sandbox": {layer.name: layer.lack for layer in status.sandbox},
        "reload_fault": status.reload_fault,
        "functions": [{name: getattr(function, name) for name in _FUNCTION_FIELDS} for function in status.functions],
    }


def _proven(returned: pa.Table) -> int:
    if returned.column(0).combine_chunks() != pa.chunked_array([_proof().column(0)]).combine_chunks():
        raise ValueError(f"{returned.num_rows} rows came back, which are not the {_proof().num_rows} that were sent")
    return int(returned.num_rows)


def first_line(error: Exception) -> str:
    """Return the message of a failed call, without the text that Flight adds to every message."""
    line = str(error).strip().split("\n", 1)[0]
    return line.split(". Detail:")[0].split(". gRPC client debug context:")[0].split(", with message: ")[-1]
