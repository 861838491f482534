# SPDX-License-Identifier: Apache-2.0
"""Functions of modules in real workers: each form, each kind, and the errors that callers see."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pool_driver import (
    Zygotes,
    answers,
    exchange,
    leased,
    raw_exchange,
    requests,
    running_pool,
    send_command,
    send_requests,
)
from registered_modules import called, columns, named, zygotes_with

from updraft.v1 import exchange_pb2
from updraft_server.ipc.frame_stream import FrameReceiver
from updraft_server.ipc.frames import FrameKind
from updraft_server.pool.bindings import REGISTERED
from updraft_server.pool.leases import LeaseOutcome

FUNCTIONS = '''
import os
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from updraft import function
from updraft.functions import Arrow, NumPy, Pandas

LOADED_BY = os.getpid()


@function
def rows(x: int, y: int = 10) -> int:
    """Adds."""
    return x + y


@function
def arrow(x: Arrow[int], y: Arrow[int] = 10) -> Arrow[int]:
    return pc.add(x, y)


@function
def pandas(x: Pandas[int], y: Pandas[int] = 10) -> Pandas[int]:
    return x + y


@function
def numpy(x: NumPy[int], y: NumPy[int] = 10) -> NumPy[int]:
    return x + y


@function
async def awaited(x: int, y: int = 10) -> int:
    return x + y


@function
def iterator(batches: Iterator[tuple[Arrow[int], Arrow[int]]]) -> Iterator[Arrow[int]]:
    # It reads ahead.
    for x, y in list(batches):
        yield pc.add(x, y)


@function(version="1")
def versioned(x: int) -> str:
    return "one"


first = versioned


@function(version="2")
def versioned(x: int) -> str:
    return "two"


@function
class LoadedInWorker:
    def __init__(self) -> None:
        self.process = os.getpid()
        self.calls = 0

    def __call__(self, x: int) -> str:
        self.calls += 1
        return f"{self.process == LOADED_BY} {self.calls}"


@function(load="zygote")
class LoadedInZygote:
    def __init__(self) -> None:
        self.process = os.getpid()

    def __call__(self, x: int) -> str:
        return f"{self.process == LOADED_BY} {os.getpid() == LOADED_BY}"


@function(on_error="null")
def forgiving(x: int) -> float:
    return 1 / x


@function(on_error="struct")
def telling(x: int) -> float:
    return 1 / x


@function
def failing(x: int) -> float:
    return 1 / x


@function
def lying(x: int) -> int:
    return x / 2


class Word(NamedTuple):
    word: str
    length: int


@function.table
def words(text: str) -> Iterator[Word]:
    for word in text.split():
        yield Word(word, len(word))


@function.table(result=pa.schema({"letter": pa.string()}))
def letters(text: Arrow[str]) -> Iterator[pa.RecordBatch]:
    for each in text.to_pylist():
        yield pa.record_batch({"letter": pa.array(list(each), pa.string())})


@function.table
def endless(x: int) -> Iterator[int]:
    while True:
        yield x


@function
class Unloadable:
    def __init__(self) -> None:
        raise OSError("the weights are missing")

    def __call__(self, x: int) -> int:
        return x
'''
FORMS = ["rows", "arrow", "pandas", "numpy", "awaited", "iterator"]


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygotes]:
    with zygotes_with(tmp_path_factory.mktemp("functions"), functions_of_a_team=FUNCTIONS) as zygotes:
        yield zygotes


async def test_every_form_answers_each_batch_with_as_many_rows(functions: Zygotes) -> None:
    batches = [columns([1, 2], [3, 4]), columns([5], [6]), columns(pa.array([], pa.int64()), pa.array([], pa.int64()))]
    async with running_pool(functions) as pool:
        for form in FORMS:
            reply = await exchange(pool, batches, named(form))
            assert (reply.error, reply.ending) == (None, FrameKind.DONE), form
            assert [batch.column(0).to_pylist() for _, batch in reply.batches] == [[4, 6], [11], []], form
            assert [sequence for sequence, _ in reply.batches] == [1, 2, 3], form
            assert reply.schema == pa.schema([pa.field("result", pa.int64(), nullable=False)])


async def test_a_column_that_is_missing_has_its_default(functions: Zygotes) -> None:
    reply = await called(functions, "rows", columns([1]))
    assert reply.table.column(0).to_pylist() == [11]


async def test_a_plain_client_learns_the_type_of_results_before_it_sends_a_batch(functions: Zygotes) -> None:
    async with running_pool(functions) as pool:
        frames = requests([])[:-1]
        schema = columns([1], [2]).schema
        reply = await raw_exchange(pool, schema, frames, None, plain_function="rows")
    assert (reply.batches, reply.schema) == ([], pa.schema([pa.field("result", pa.int64(), nullable=False)]))


async def test_versions_live_side_by_side_and_the_last_one_is_the_default(functions: Zygotes) -> None:
    answers = [await called(functions, "versioned", columns([1]), version=version) for version in ("", "1", "2")]
    assert [answer.table.column(0).to_pylist() for answer in answers] == [["two"], ["one"], ["two"]]


async def test_a_class_is_loaded_once_in_a_worker_or_once_for_all(functions: Zygotes) -> None:
    async with running_pool(functions) as pool:
        in_worker = [await exchange(pool, [columns([1, 1])], named("LoadedInWorker")) for _ in range(2)]
        in_zygote = await exchange(pool, [columns([1])], named("LoadedInZygote"))
    assert [reply.table.column(0).to_pylist() for reply in in_worker] == [
        ["False 1", "False 2"],
        ["False 3", "False 4"],
    ]
    assert in_zygote.table.column(0).to_pylist() == ["True False"]
    assert [[load.function for load in reply.loads] for reply in (*in_worker, in_zygote)] == [
        ["LoadedInWorker"],
        [],
        [],
    ]


async def test_a_policy_decides_what_a_failure_means_for_its_row(functions: Zygotes) -> None:
    batch = columns([1, 0, 2])
    assert (await called(functions, "forgiving", batch)).table.column(0).to_pylist() == [1.0, None, 0.5]
    told = (await called(functions, "telling", batch)).table.column(0).to_pylist()
    assert told[1] == {"value": None, "error": "ZeroDivisionError: division by zero"}
    failed = (await called(functions, "failing", batch)).error
    assert (failed.kind, failed.exception_class) == (exchange_pb2.ERROR_KIND_USER, "ZeroDivisionError")
    assert "return 1 / x" in failed.traceback


STRICT = {
    "type": ([columns([1.0])], "argument 'x' of function 'rows' is int64, not double"),
    "too_many": ([columns([1], [2], [3])], "takes 1 to 2 columns"),
    "too_few": ([columns([1]).select([])], "takes 1 to 2 columns"),
    "null": ([columns([1]), columns([1, None])], "argument 'x' of function 'rows' has a null"),
}


@pytest.mark.parametrize("case", STRICT)
@pytest.mark.parametrize("form", ["rows", "arrow", "awaited"])
async def test_wrong_arguments_are_the_callers_error(functions: Zygotes, case: str, form: str) -> None:
    batches, reason = STRICT[case]
    error = (await called(functions, form, *batches)).error
    assert error.kind == exchange_pb2.ERROR_KIND_PROTOCOL
    assert reason.replace("'rows'", repr(form)) in error.message


async def test_an_iterator_that_hides_a_wrong_argument_changes_nothing(functions: Zygotes) -> None:
    error = (await called(functions, "iterator", columns([1, None], [1, 2]))).error
    assert (error.kind, "has a null" in error.message) == (exchange_pb2.ERROR_KIND_PROTOCOL, True)


async def test_a_wrong_result_is_the_functions_error_and_the_worker_stays(functions: Zygotes) -> None:
    async with running_pool(functions) as pool:
        reply = await exchange(pool, [columns([1])], named("lying"))
        assert (reply.error.kind, reply.ending) == (exchange_pb2.ERROR_KIND_USER, FrameKind.FAILED)
        assert "function 'lying' returned a value that does not fit int64" in reply.error.message
        assert (await exchange(pool, [columns([1])], named("rows"))).error is None


async def test_the_rows_of_a_table_come_in_order_and_no_request_is_taken_before_them(functions: Zygotes) -> None:
    reply = await called(functions, "words", columns(["a bc", ""]), columns(["def"]))
    assert reply.table.to_pylist() == [
        {"word": "a", "length": 1},
        {"word": "bc", "length": 2},
        {"word": "def", "length": 3},
    ]
    assert reply.row_ends == [[], []]
    assert (reply.finish.batches, reply.finish.rows) == (2, 3)


@pytest.mark.parametrize("function", ["words", "letters"])
async def test_a_client_that_joins_learns_which_rows_came_of_which(functions: Zygotes, function: str) -> None:
    async with running_pool(functions) as pool:
        batches = [columns(["a b", "", "d"]), columns(["e"])]
        reply = await exchange(pool, batches, named(function), joined=True)
    values = [batch.column(0).to_pylist() for _, batch in reply.batches]
    if function == "words":
        assert (values, reply.row_ends) == ([["a", "b", "d"], ["e"]], [[2, 2, 3], [1]])
    else:
        assert (values, reply.row_ends) == ([["a", " ", "b", "d"], ["e"]], [[3, 3, 4], [1]])


async def test_replies_of_a_table_are_as_large_as_the_client_allows(functions: Zygotes) -> None:
    async with running_pool(functions) as pool:
        command = named("letters")
        command.limits.max_records_per_reply = 2
        reply = await exchange(pool, [columns(["abc", "d"])], command, joined=True)
    assert [batch.column(0).to_pylist() for _, batch in reply.batches] == [["a", "b"], ["c", "d"]]
    assert reply.row_ends == [[], [1, 2]]


async def test_a_table_without_an_end_ends_with_its_client(functions: Zygotes) -> None:
    async with running_pool(functions) as pool:
        lease = await leased(pool, None, REGISTERED)
        await send_command(lease, columns([1]).schema, named("endless"))
        await send_requests(lease, requests([columns([1])]))
        receiver = FrameReceiver(lease.socket, max_payload_bytes=2**31)
        for _ in range(20):
            assert (await receiver.receive()).kind is FrameKind.MESSAGE
        lease.release(LeaseOutcome.CANCELLED)
        await answers(pool)


async def test_a_class_that_cannot_be_constructed_says_so_to_its_callers_alone(functions: Zygotes) -> None:
    async with running_pool(functions) as pool:
        error = (await exchange(pool, [columns([1])], named("Unloadable"))).error
        assert error.kind == exchange_pb2.ERROR_KIND_FUNCTION_LOAD
        assert error.message == "function 'Unloadable' cannot be loaded: OSError: the weights are missing"
        assert "raise OSError" in error.traceback
        assert (await exchange(pool, [columns([1])], named("rows"))).error is None
