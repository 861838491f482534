# SPDX-License-Identifier: Apache-2.0
"""Front that accepts tokens of an issuer: what the tokens grant, and the statuses of refusals."""

import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from fake_pool import FakePool
from flight_messages import all_replies, batch, command_request, echo_command, finish
from front_calls import Gate, admitted, until
from front_harness import Running, RunningFront
from issuing import Key, entry, key_set

from updraft.protocol import TENANT_HEADER

KEY = Key("one")


@pytest.fixture
def identities(tmp_path: Path) -> Path:
    (tmp_path / "keys.json").write_bytes(key_set(KEY))
    path = tmp_path / "identities.toml"
    path.write_text(entry(f'keys_file = "{tmp_path / "keys.json"}"'))
    return path


async def test_a_token_of_an_issuer_runs_a_function_for_its_tenant(running_front: Running, identities: Path) -> None:
    pool = FakePool()
    async with running_front(pool, identities_file=identities) as front:
        call = front.exchange(metadata=(("authorization", f"Bearer {KEY.token()}"), (TENANT_HEADER, "a")))
        for message in (command_request(echo_command()), batch(1), finish(1)):
            await call.write(message)
        await call.done_writing()
        _, error = await all_replies(call)
        assert error is None
        assert await admitted(front.channel, f"Bearer {KEY.token()}") is grpc.StatusCode.OK
    assert len(pool.leases) == 1


def revoke(identities: Path) -> None:
    identities.write_text(identities.read_text() + '[revoked]\njti = ["r"]\n')


def waits(front: RunningFront, count: int) -> bool:
    return front.front.admission.waiting == count


async def test_a_token_that_is_revoked_while_its_exchange_waits_gets_no_worker_and_one_that_expires_does(
    running_front: Running, identities: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, now = Gate(), int(time.time())
    later_seconds = 0
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + later_seconds)
    monkeypatch.setattr("updraft.service.flight_service.time", clock)
    async with running_front(FakePool(workers=1, script=gate.script), identities_file=identities) as front:
        # The second token has expired, but within the allowed clock skew.
        claims: list[dict[str, Any]] = [{}, {"iat": now - 600, "exp": now - 15}, {"jti": "r"}]
        calls = [front.exchange(metadata=(("authorization", f"Bearer {KEY.token(**each)}"),)) for each in claims]
        for number, call in enumerate(calls):
            command = echo_command()
            command.task.task_attempt_id += number
            await call.write(command_request(command))
            if number == 0:
                await call.read()
            await until(partial(waits, front, number))
        revoke(identities)
        monkeypatch.setattr("updraft.service.issued_tokens._LEEWAY_SECONDS", 0)
        # Clear the cache, so that the front checks the tokens again.
        door: Any = front.front.listeners._authenticator
        door._issued._verified.clear()
        later_seconds = 60
        gate.opened.set()
        for call in calls[:2]:
            await call.write(finish(0))
            await call.done_writing()
            assert (await all_replies(call))[1] is None
        _, error = await all_replies(calls[2])
        assert error is not None
        assert error.code() is grpc.StatusCode.UNAUTHENTICATED


EXPIRED = "the token has expired"
UNKNOWN = "the token is not one that this service knows"
BEYOND = "cannot act for the tenant 'c'"
AT_THE_DOOR = (EXPIRED, UNKNOWN, BEYOND)


@pytest.mark.parametrize(
    ("token", "code", "says"),
    [
        (KEY.token(exp=int(time.time()) - 60), grpc.StatusCode.UNAUTHENTICATED, EXPIRED),
        (Key("one").token(), grpc.StatusCode.UNAUTHENTICATED, UNKNOWN),
        (KEY.token(tenant="c"), grpc.StatusCode.PERMISSION_DENIED, BEYOND),
        (KEY.token(tenant="b"), grpc.StatusCode.PERMISSION_DENIED, "is of the tenant 'b' and cannot act for 'a'"),
        (KEY.token(scope="session"), grpc.StatusCode.PERMISSION_DENIED, "'sign-on:job' may not"),
    ],
    ids=["expired", "forged", "beyond the ceiling", "another tenant", "another scope"],
)
async def test_a_token_that_does_not_suffice_is_refused_with_its_reason(
    running_front: Running, identities: Path, token: str, code: grpc.StatusCode, says: str
) -> None:
    pool = FakePool()
    async with running_front(pool, identities_file=identities) as front:
        call = front.exchange(metadata=(("authorization", f"Bearer {token}"), (TENANT_HEADER, "a")))
        # The front refuses an unauthenticated client before it sends anything. A write after the end of the call would
        # make the client forget the status.
        if says not in AT_THE_DOOR:
            await call.write(command_request(echo_command()))
        _, error = await all_replies(call)
    assert error is not None
    assert (error.code(), pool.leases) == (code, [])
    assert says in str(error.details())
