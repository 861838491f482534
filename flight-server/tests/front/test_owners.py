# SPDX-License-Identifier: Apache-2.0
"""The front passes the owner of an exchange to the pool, which chooses a worker, and to the worker."""

import json
from collections.abc import Sequence

import pytest
from fake_pool import FakePool, FakeWorker
from flight_messages import all_replies, batch, command_request, echo_command, finish
from front_harness import Running

from updraft.v1.exchange_pb2 import ExchangeCommand, Owner, SessionFunction, TaskIdentity
from updraft_server.ipc.frames import FrameKind
from updraft_server.pool import leases
from updraft_server.pool.bindings import REGISTERED, Binding

SESSION = SessionFunction(python_version="3.11", spark_version="4.3.0")
OWNER = Owner(tenant="theirs", application_id="app", session_id="s")


class Workers:
    """Workers that record the owner of each assignment."""

    def __init__(self) -> None:
        self.owners: list[Sequence[str]] = []

    async def script(self, worker: FakeWorker) -> None:
        self.owners.append(json.loads(bytes((await worker.receive()).app_metadata))["owner"])
        await worker.send(FrameKind.MESSAGE, b"", b"schema")
        while (await worker.receive()).kind is not FrameKind.END:
            pass
        await worker.send(FrameKind.DONE)


def session(owner: Owner) -> ExchangeCommand:
    return echo_command(session=SESSION, task=TaskIdentity(owner=owner, stage_id=2, task_attempt_id=4))


@pytest.mark.parametrize(
    ("command", "headers", "owner"),
    [
        (session(OWNER), {}, ["theirs", "app", "s"]),
        (session(OWNER), {"x-updraft-tenant": "header"}, ["header", "app", "s"]),
        (session(Owner(application_id="app")), {}, ["app", "app", ""]),
        (session(Owner()), {}, ["", "", ""]),
        (echo_command(task=TaskIdentity(owner=OWNER)), {}, []),
    ],
    ids=["command", "header", "application", "anonymous", "registered"],
)
async def test_the_owner_of_a_session_function_is_told_to_pool_and_worker(
    running_front: Running, command: ExchangeCommand, headers: dict[str, str], owner: list[str]
) -> None:
    workers = Workers()
    pool = FakePool(1, workers.script)
    async with running_front(pool, session_functions="unsigned") as front:
        call = front.exchange(metadata=tuple(headers.items()))
        for message in (command_request(command), batch(1), finish(1)):
            await call.write(message)
        await call.done_writing()
        assert (await all_replies(call))[1] is None
    assert workers.owners == [owner]
    assert [lease.binding for lease in pool.leases] == [Binding(leases.Owner(*owner)) if owner else REGISTERED]
