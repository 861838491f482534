# SPDX-License-Identifier: Apache-2.0
"""Lines printed by functions are kept, within limits, for the callers that may read them."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from updraft.errors import PermissionDeniedError, ProtocolError
from updraft.service.identity import ANYBODY, TOKEN_HOLDER, TOKEN_HOLDER_AMONG_IDENTITIES, Identity
from updraft_server.front.status.output_log import EVERYBODY, KEPT_CHARACTERS, KEPT_LINES, KEPT_READERS, OutputLog
from updraft_server.front.status.readers import readers, require_readers
from updraft_server.pool.worker_events import DroppedOutput, LogContext, Reader, WorkerOutput

KEY, OTHER_KEY = "k" * 32, "o" * 32
DRIVER = Identity("driver", "a", frozenset(), proven_name="identity:driver")


def printed(line: str, *who: Reader, **fields: str) -> WorkerOutput:
    context = LogContext(fields or {"function": "greeting"})
    context.readers = frozenset(who)
    return WorkerOutput("w-1", line, context)


async def read(log: OutputLog, *who: Reader | None, **how: Any) -> list[str]:
    asked: dict[str, Any] = {"fields": {}, "most": KEPT_LINES, "after_microseconds": 0, "wait_seconds": 0.0, **how}
    return [line.text for line in await log.lines(who, **asked)]


def own(identity: Identity = ANYBODY, key: str = KEY) -> Reader:
    (reader,) = readers(identity, key)
    return reader


async def test_a_reader_gets_the_lines_of_its_own_exchanges() -> None:
    log = OutputLog()
    mine, theirs = own(), own(key=OTHER_KEY)
    log.take(printed("mine", mine))
    log.take(printed("theirs", theirs))
    log.take(printed("nobody's"))
    assert await read(log, mine) == ["mine"]
    assert await read(log, theirs) == ["theirs"]
    assert await read(log, own(key="x" * 32)) == []
    assert await read(log, EVERYBODY) == ["mine", "theirs", "nobody's"]


def test_only_a_proof_makes_a_reader() -> None:
    for shared in (ANYBODY, TOKEN_HOLDER, TOKEN_HOLDER_AMONG_IDENTITIES):
        with pytest.raises(PermissionDeniedError, match="cannot tell which exchanges"):
            require_readers(shared, "")
        assert len(require_readers(shared, KEY)) == 1
    assert len(require_readers(DRIVER, "")) == 1
    assert len(require_readers(DRIVER, KEY)) == 2
    with pytest.raises(ProtocolError, match="has 31 characters"):
        readers(DRIVER, "k" * 31)


@pytest.mark.parametrize(
    "other",
    [
        replace(DRIVER, tenant="b"),
        replace(DRIVER, name="other"),
        replace(DRIVER, proven_name="identity:other"),
        ANYBODY,
    ],
)
def test_the_key_of_another_identity_opens_nothing(other: Identity) -> None:
    assert not readers(DRIVER, "") & readers(other, "")
    assert (readers(DRIVER, KEY) & readers(other, KEY) == frozenset()) is (
        other.name != "driver" or other.tenant == "b"
    )


async def test_the_last_lines_that_match_are_returned_once() -> None:
    log, mine = OutputLog(clock=lambda: 1.0), own()
    for number in range(4):
        log.take(printed(f"line {number}", mine, function="f", partition=str(number % 2)))
    assert await read(log, mine, most=2) == ["line 2", "line 3"]
    assert await read(log, mine, fields={"partition": "1"}) == ["line 1", "line 3"]
    assert await read(log, mine, fields={"worker": "w-1"}, most=1) == ["line 3"]
    assert await read(log, mine, fields={"stage": "1"}) == []
    # The clock stands still, and each line still gets a distinct time.
    lines = await log.lines([mine], fields={}, most=9, after_microseconds=0, wait_seconds=0)
    assert await read(log, mine, after_microseconds=lines[1].time_microseconds) == ["line 2", "line 3"]
    assert lines[0].to_plain() == {
        "worker": "w-1",
        "function": "f",
        "partition": "0",
        "line": "line 0",
        "time_microseconds": 1_000_000,
    }


async def test_a_reader_waits_for_lines_of_its_own() -> None:
    log, mine, theirs = OutputLog(), own(), own(key=OTHER_KEY)
    waiting = asyncio.create_task(read(log, mine, wait_seconds=20))
    await asyncio.sleep(0)
    log.take(printed("theirs", theirs))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    log.take(printed("mine", mine))
    assert await waiting == ["mine"]


async def test_dropped_lines_are_mentioned() -> None:
    log, mine = OutputLog(), own()
    log.take_drop(DroppedOutput("w-1", 7, 70, printed("", mine).context))
    assert await read(log, mine) == ["[7 lines were dropped: the function printed too many]"]


async def test_what_is_kept_is_bounded() -> None:
    log, mine = OutputLog(), own()
    for number in range(KEPT_LINES + 5):
        log.take(printed(str(number), mine))
    assert (await read(log, mine))[0] == "5"
    for _ in range(KEPT_CHARACTERS // 1000 + 5):
        log.take(printed("x" * 1000, mine))
    kept = await read(log, mine)
    assert sum(map(len, kept)) <= KEPT_CHARACTERS
    assert set(kept) == {"x" * 1000}


async def test_a_caller_with_many_keys_displaces_its_own_lines_first() -> None:
    log = OutputLog()
    (driver,) = readers(DRIVER, "")
    log.take(printed("the driver's", driver))
    flood = [own(key=f"{number:032}") for number in range(KEPT_READERS + 10)]
    for reader in flood:
        log.take(printed("flood", reader))
    assert await read(log, driver) == ["the driver's"]
    assert await read(log, flood[0]) == []
    assert await read(log, flood[-1]) == ["flood"]
