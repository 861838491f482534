# SPDX-License-Identifier: Apache-2.0
"""Attempts of clients without a key to run code in a pool that runs only functions signed by a driver.

The clients have a token, and have seen everything that an executor of the driver sends.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import LongType, StringType
from session_commands import BATCHED, scalar_arrow, session_command, udf
from signing import Driver

from tests.attacks.clients import BATCH, SCHEMA, admitted, broadcast, opened, part
from tests.attacks.outsiders import ClientAttempts, Outsider
from tests.support.flight import CMD, FlightData, FlightDescriptor, finishing, ipc_parts, numbered
from updraft.v1.exchange_pb2 import (
    Artifact,
    DeferredPayload,
    ExchangeCommand,
    Owner,
    PayloadPart,
    ReplyMetadata,
    RequestMetadata,
    SessionFunction,
    SessionPayload,
    SignedStatement,
    WorkerModule,
)
from updraft_server.worker.pyspark.connections import SCHEMA as WORKER_SCHEMA
from updraft_server.worker.pyspark.wire import text

ATTEMPTS = ClientAttempts()

OWNER = Owner(tenant="team-a", application_id="app-of-the-driver", session_id="session-1")
_ROWS = pa.schema({"_0": pa.binary()})


class Keyless(Outsider):
    """Client with a token and everything that the driver has signed, but without the driver's key."""

    def __init__(self, address: str, certificate: bytes, token: str, marks: Path, driver: Driver) -> None:
        """Keep `marks`, the directory in which a function that runs can leave a mark."""
        super().__init__(address, certificate, token)
        self.marks = marks
        self.signed = signed(driver, scalar_arrow(_unchanged()))
        self.with_artifact = signed(driver, scalar_arrow(_unchanged(), artifacts=[broadcast(b"of the driver")]))
        self.of_rows = signed(driver, session_command(BATCHED, udf(_unchanged(), LongType())), _ROWS)
        module = WorkerModule(name="pyspark.sql.worker.analyze_udtf", opening=text("2.7"))
        self.worker = signed(driver, session_command(0, [], worker_module=module), WORKER_SCHEMA)

    def evil(self) -> ExchangeCommand:
        """Return the driver's command with another function."""
        made = ExchangeCommand()
        made.CopyFrom(self.signed)
        made.payload = scalar_arrow(leaves_a_mark(self.marks), StringType()).payload
        return made

    def changed(self, change: Callable[[ExchangeCommand], object]) -> ExchangeCommand:
        """Return a copy of the driver's signed command, changed by `change`."""
        made = ExchangeCommand()
        made.CopyFrom(self.signed)
        change(made)
        return made

    def of_owner(self, owner: Owner) -> ExchangeCommand:
        """Return the driver's signed command with another owner."""
        return self.changed(lambda made: made.task.owner.CopyFrom(owner))


def signed(driver: Driver, made: ExchangeCommand, schema: pa.Schema | None = None) -> ExchangeCommand:
    """Return a signed command of the driver's own application."""
    made.task.owner.CopyFrom(OWNER)
    return driver.signed(made, _header(schema) if schema is not None else SCHEMA[0])


def leaves_a_mark(marks: Path) -> Callable[[Any], Any]:
    """Return a function that leaves a file as proof that it has run."""
    path = str(marks / "function")

    def leaves(column: Any) -> Any:
        import pyarrow

        with open(path, "w"):
            return pyarrow.array([""] * len(column))

    return leaves


def _unchanged() -> Callable[[Any], Any]:
    # Pickled by value, because the pool's machine does not have this module.
    return lambda column: column


def _header(schema: pa.Schema) -> bytes:
    return ipc_parts(schema, [])[0][0]


def ended(outsider: Outsider, made: ExchangeCommand) -> str:
    """Run a whole exchange with one batch, and return its status."""
    return opened(outsider, made).say(numbered(*BATCH, 1), finishing(1, 1)).half_close().end()


def _refusals(outsider: Outsider, commands: Iterable[ExchangeCommand]) -> list[str]:
    return [opened(outsider, made).end() for made in commands]


@ATTEMPTS("OK")
def sends_rows_to_what_the_driver_has_signed(keyless: Keyless) -> list[str]:
    # If this attempt did not succeed, refusals of the other attempts would prove nothing.
    return [ended(keyless, keyless.signed)]


@ATTEMPTS("PERMISSION_DENIED")
def sends_a_function_of_its_own(keyless: Keyless) -> list[str]:
    def without(made: ExchangeCommand) -> None:
        made.ClearField("signed_statement")

    unsigned = keyless.evil()
    unsigned.ClearField("signed_statement")
    empty = keyless.evil()
    empty.signed_statement.CopyFrom(SignedStatement())
    return _refusals(keyless, [keyless.evil(), unsigned, empty, keyless.changed(without)])


@ATTEMPTS("PERMISSION_DENIED")
def signs_with_a_key_of_its_own(keyless: Keyless) -> list[str]:
    own = Driver().signed(keyless.evil(), SCHEMA[0])
    under_its_name = ExchangeCommand()
    under_its_name.CopyFrom(own)
    under_its_name.signed_statement.key_sha256 = keyless.signed.signed_statement.key_sha256
    return _refusals(keyless, [own, under_its_name])


@ATTEMPTS("PERMISSION_DENIED")
def changes_each_byte_of_what_was_signed(keyless: Keyless) -> list[str]:
    def altered() -> Iterator[ExchangeCommand]:
        for field in ("statement", "signature", "key_sha256"):
            original = getattr(keyless.signed.signed_statement, field)
            for place in range(len(original)):
                made = ExchangeCommand()
                made.CopyFrom(keyless.signed)
                other = bytearray(original)
                other[place] ^= 0x01
                setattr(made.signed_statement, field, bytes(other))
                yield made

    return _refusals(keyless, altered())


@ATTEMPTS("PERMISSION_DENIED")
def changes_what_the_function_runs_with(keyless: Keyless) -> list[str]:
    def settings(made: ExchangeCommand) -> None:
        payload = SessionPayload.FromString(made.payload)
        payload.runner_conf["spark.sql.session.timeZone"] = "Asia/Tokyo"
        made.payload = payload.SerializeToString()

    def arguments(made: ExchangeCommand) -> None:
        payload = SessionPayload.FromString(made.payload)
        payload.udfs[0].arguments[0].offset += 1
        made.payload = payload.SerializeToString()

    changes: list[Callable[[ExchangeCommand], object]] = [
        settings,
        arguments,
        lambda made: made.session.environment.update(TZ="Asia/Tokyo"),
        lambda made: made.session.user_environment.update(MODEL="another"),
        lambda made: made.session.python_includes.append("code.py"),
        lambda made: made.session.artifacts.append(Artifact(sha256=bytes(32), size_bytes=1, file_name="code.py")),
        lambda made: setattr(made.session, "eval_type", made.session.eval_type + 1),
        lambda made: setattr(made.session, "spark_version", made.session.spark_version + ".1"),
        lambda made: setattr(made, "payload", made.payload + b"\x00"),
        lambda made: setattr(made, "payload", b""),
    ]
    return _refusals(keyless, map(keyless.changed, changes))


def _worker_ended(outsider: Outsider, made: ExchangeCommand) -> str:
    message = FlightData(
        flight_descriptor=FlightDescriptor(type=CMD, cmd=made.SerializeToString()), data_header=_header(WORKER_SCHEMA)
    )
    return outsider.exchange(message).say(finishing(0, 0)).half_close().end()


@ATTEMPTS("OK")
def opens_the_worker_exchange_that_the_driver_has_signed(keyless: Keyless) -> list[str]:
    # PySpark's worker reads the first bytes, and reports to Spark that it runs another version of Python.
    return [_worker_ended(keyless, keyless.worker)]


@ATTEMPTS("PERMISSION_DENIED")
def changes_what_a_worker_reads_first(keyless: Keyless) -> list[str]:
    def with_module(**changes: str | bytes) -> ExchangeCommand:
        made, payload = ExchangeCommand(), SessionPayload.FromString(keyless.worker.payload)
        made.CopyFrom(keyless.worker)
        for name, value in changes.items():
            setattr(payload.worker_module, name, value)
        made.payload = payload.SerializeToString()
        return made

    opening = text("2.7")
    openings = [
        b"",
        opening[:-1],
        opening + b"\0",
        *(opening[:place] + bytes([opening[place] ^ 1]) + opening[place + 1 :] for place in range(len(opening))),
    ]
    changed = [with_module(opening=other) for other in openings]
    changed.append(with_module(name="pyspark.worker"))
    unsigned = with_module()
    unsigned.ClearField("signed_statement")
    changed.append(unsigned)
    other_owner = with_module()
    other_owner.task.owner.session_id = "session-2"
    changed.append(other_owner)
    as_function = with_module()
    as_function.payload = keyless.signed.payload
    changed.append(as_function)
    return [_worker_ended(keyless, made) for made in changed]


@ATTEMPTS("PERMISSION_DENIED")
def passes_for_another_owner(keyless: Keyless) -> list[str]:
    owners = [
        Owner(tenant=tenant, application_id=application, session_id=session)
        for tenant, application, session in (
            ("team-b", OWNER.application_id, OWNER.session_id),
            ("", OWNER.application_id, OWNER.session_id),
            ("Team-A", OWNER.application_id, OWNER.session_id),
            ("team-a ", OWNER.application_id, OWNER.session_id),
            (OWNER.tenant, "another-app", OWNER.session_id),
            (OWNER.tenant, OWNER.application_id, "session-2"),
            (OWNER.tenant, OWNER.application_id, ""),
        )
    ]
    told = _refusals(keyless, map(keyless.of_owner, owners))
    message = FlightData(
        flight_descriptor=FlightDescriptor(type=CMD, cmd=keyless.signed.SerializeToString()), data_header=SCHEMA[0]
    )
    for name in ("team-b", "team-a ", "TEAM-A"):
        headers = [*keyless.headers, ("x-updraft-tenant", name)]
        told.append(keyless.exchange(message, headers=headers).end())
    return told


@ATTEMPTS("PERMISSION_DENIED")
def says_twice_what_to_run(keyless: Keyless) -> list[str]:
    # If a field occurs twice, a parser takes the last value, or merges both values.
    once, evil = keyless.signed.SerializeToString(), keyless.evil()
    additions = [
        ExchangeCommand(payload=evil.payload),
        ExchangeCommand(session=SessionFunction(user_environment={"MODEL": "another"})),
        ExchangeCommand(session=SessionFunction(python_includes=["code.py"])),
        ExchangeCommand(signed_statement=SignedStatement(signature=bytes(64))),
        ExchangeCommand(signed_statement=Driver().signed(evil, SCHEMA[0]).signed_statement, payload=evil.payload),
    ]
    descriptors = [FlightDescriptor(type=CMD, cmd=once + addition.SerializeToString()) for addition in additions]
    return [
        keyless.exchange(FlightData(flight_descriptor=descriptor, data_header=SCHEMA[0])).end()
        for descriptor in descriptors
    ]


@ATTEMPTS("PERMISSION_DENIED")
def sends_another_function_than_it_has_announced(keyless: Keyless) -> list[str]:
    evil = keyless.evil()
    made = keyless.changed(lambda command: command.ClearField("payload"))
    made.deferred_payload.CopyFrom(DeferredPayload(size_bytes=len(evil.payload)))
    exchange = opened(keyless, made)
    while ReplyMetadata.FromString(exchange.hear().app_metadata).WhichOneof("event") != "payload_wanted":
        pass
    metadata = RequestMetadata(payload=PayloadPart(offset=0)).SerializeToString()
    return [exchange.say(FlightData(app_metadata=metadata, data_body=evil.payload)).end()]


@ATTEMPTS("INVALID_ARGUMENT")
def sends_other_bytes_under_the_digest_that_was_signed(keyless: Keyless) -> list[str]:
    (artifact,) = keyless.with_artifact.session.artifacts
    other = b"of somebody!!"
    assert len(other) == artifact.size_bytes
    exchange = opened(keyless, keyless.with_artifact)
    while not ReplyMetadata.FromString(exchange.hear().app_metadata).artifacts_wanted.sha256:
        pass
    return [exchange.say(part(artifact, other)).end()]


class _Calls:
    """Object whose pickle calls a function that leaves a mark."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self._call = function, arguments

    def __reduce__(self) -> Any:
        return self._call


@ATTEMPTS("UNKNOWN")
def calls_functions_by_its_rows(keyless: Keyless) -> list[str]:
    mark = str(keyless.marks / "rows")
    calls: list[tuple[Any, ...]] = [
        (os.mkdir, mark),
        (open, mark, "w"),
        (os.system, f"touch {mark}"),
        (eval, f"open({mark!r}, 'w')"),
    ]
    told = []
    for call in calls:
        for protocol in (0, 2, 4):
            rows = pickle.dumps([_Calls(*call)], protocol)
            schema, batch = ipc_parts(_ROWS, [pa.record_batch([[rows]], schema=_ROWS)])
            exchange = admitted(opened(keyless, keyless.of_rows, schema[0]))
            told.append(exchange.say(numbered(*batch, 1)).end())
    return told
