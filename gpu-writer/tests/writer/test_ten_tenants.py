# SPDX-License-Identifier: Apache-2.0
"""Nine tenants that hold all they can get of a running writer, and a tenth that writes a file."""

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pyarrow as pa
import pytest
from running_writer import (
    BATCH,
    BATCH_BYTES,
    SCHEMA,
    WITHIN_SECONDS,
    RawExchange,
    RunningWriter,
    command,
    read,
    running_writer,
    wait_for,
)

from updraft.errors import QuotaError
from updraft.v1.exchange_pb2 import Owner, TaskIdentity
from updraft.v1.write_pb2 import WriteReplyMetadata
from updraft_writer import exchange as exchanges

GREEDY = [f"greedy-{number}" for number in range(9)]
QUOTA_BYTES = 16 << 20
ASK_BYTES = 256 << 10
# The writer ends exchanges only because others wait.
PATIENT: dict[str, Any] = {
    "quota_bytes": QUOTA_BYTES,
    "constants": {"exchange.STALL_TIMEOUT_SECONDS": 3600.0, "quota.ADMISSION_TIMEOUT_SECONDS": 3600.0},
}


def opened(writer: RunningWriter, tenant: str, number: int = 0) -> RawExchange:
    task = TaskIdentity(owner=Owner(tenant=tenant))
    return RawExchange(writer.address, SCHEMA, command(writer.root / f"{tenant}-{number}", task=task))


@contextmanager
def nine_that_hold_the_quota(writer: RunningWriter) -> Iterator[list[RawExchange]]:
    """Open nine exchanges, each of which has asked for more than it can get and sends nothing."""
    quota = writer.writer.quota
    with ExitStack() as stack:
        greedy = [stack.enter_context(opened(writer, tenant)) for tenant in GREEDY]
        for each in greedy:
            for _ in range(16):
                each.ask(ASK_BYTES)
        wait_for(lambda: quota.waiting == len(greedy), "everybody has all that it can get")
        yield greedy


class Ending(NamedTuple):
    replied: WriteReplyMetadata
    code: grpc.StatusCode


def first_that_ends(exchanges: list[RawExchange]) -> Ending:
    """Return how the writer ends one of them; cancel the others."""
    with ThreadPoolExecutor(len(exchanges)) as threads:
        endings = [threads.submit(lambda each: Ending(each.last_reply(), each.call.code()), each) for each in exchanges]
        ended, _ = wait(endings, WITHIN_SECONDS, FIRST_COMPLETED)
        for each in exchanges:
            each.call.cancel()
    return ended.pop().result()


def credit_of(exchange: RawExchange) -> int:
    while not (reply := exchange.next_reply()).credit:
        pass
    return reply.credit


def writes_one_batch(exchange: RawExchange, batch: pa.RecordBatch) -> WriteReplyMetadata:
    exchange.ask(batch.nbytes)
    assert credit_of(exchange) == 1
    exchange.batch(1, batch)
    exchange.finish(1, batch.num_rows)
    exchange.half_close()
    return exchange.last_reply()


def test_a_small_file_is_written_while_nine_others_hold_the_quota_and_send_nothing(tmp_path: Path) -> None:
    with running_writer(tmp_path, **PATIENT) as writer, nine_that_hold_the_quota(writer) as greedy:
        with opened(writer, "tenth") as tenth:
            assert writes_one_batch(tenth, BATCH).receipt.rows == 1000
        assert read(tmp_path / "tenth-0") == list(range(1000))
        wait_for(lambda: len(writer.writer.files) == len(greedy), "the nine still have their files")


def test_unused_credit_is_taken_back_for_a_tenant_that_wants_its_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchanges, "_UNUSED_CREDIT_SECONDS", 0.2)
    large = pa.record_batch({"n": pa.array(range(90_000), pa.int64())})
    with running_writer(tmp_path, **PATIENT) as writer, nine_that_hold_the_quota(writer) as greedy:
        with opened(writer, "tenth") as tenth:
            assert writes_one_batch(tenth, large).receipt.rows == large.num_rows
        ended = first_that_ends(greedy)
        error = ended.replied.error
        assert ended.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert error.kind == QuotaError.kind
        assert "did not use its credit" in error.message
        assert "another tenant waited" in error.message


def test_credit_that_drips_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchanges, "_UNUSED_CREDIT_SECONDS", 0.4)
    row = BATCH.slice(0, 1)
    # With its encoding this is almost half of the quota, the share of each of two tenants.
    large = pa.record_batch({"n": pa.array(range(450_000), pa.int64())})
    with running_writer(tmp_path, **PATIENT) as writer, ExitStack() as stack:
        quota = writer.writer.quota
        greedy = [stack.enter_context(opened(writer, "greedy", number)) for number in range(2)]
        for each in greedy:
            for credit in range(50):
                each.ask(64 << 10)
                while credit_of(each) <= credit:
                    pass
        with opened(writer, "tenth") as tenth:
            tenth.ask(large.nbytes)
            wait_for(lambda: quota.waiting == 1, "the tenth waits")
            for sequence in range(1, 50):
                for each in greedy:
                    each.ask(64 << 10)
                    each.batch(sequence, row)
                if len(writer.writer.files) < 3:
                    break
                time.sleep(0.1)
            assert sequence < 12, "a client that uses little of its credit keeps the rest"
            assert "did not use its credit" in first_that_ends(greedy).replied.error.message
            assert credit_of(tenth) == 1
            tenth.batch(1, large)
            tenth.finish(1, large.num_rows)
            tenth.half_close()
            assert tenth.last_reply().receipt.rows == large.num_rows


def test_credit_of_a_file_has_a_limit(tmp_path: Path) -> None:
    most = exchanges._MAX_UNUSED_CREDIT
    with (
        running_writer(tmp_path, **PATIENT) as writer,
        opened(writer, "greedy") as greedy,
        opened(writer, "other") as other,
    ):
        for credit in range(most):
            greedy.ask(8)
            while credit_of(greedy) <= credit:
                pass
        reservations = writer.writer.quota.reservations
        greedy.ask(8)
        other.ask(8)
        assert credit_of(other) == 1
        assert writer.writer.quota.reservations == reservations + 1
        greedy.batch(1, BATCH.slice(0, 1))
        assert credit_of(greedy) == most + 1
        for each in (greedy, other):
            each.call.cancel()


def test_unused_credit_is_kept_while_nobody_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchanges, "_UNUSED_CREDIT_SECONDS", 0.2)
    looks = Counter[str]()
    with running_writer(tmp_path, **PATIENT) as writer, opened(writer, "slow") as slow:
        quota = writer.writer.quota
        is_owed = quota.is_owed_to_others

        def counted(tenant: str) -> bool:
            looks[tenant] += 1
            return is_owed(tenant)

        monkeypatch.setattr(quota, "is_owed_to_others", counted)
        slow.ask(BATCH_BYTES)
        assert credit_of(slow) == 1
        wait_for(lambda: looks["slow"] > 20, "many times the limit")
        slow.batch(1, BATCH)
        slow.finish(1, 1000)
        slow.half_close()
        assert slow.last_reply().receipt.rows == 1000


def test_idle_files_give_way_to_a_tenant_that_found_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchanges, "_IDLE_FILE_SECONDS", 0.2)
    with running_writer(tmp_path, max_open_files=4, **PATIENT) as writer, ExitStack() as stack:
        idle = [stack.enter_context(opened(writer, "greedy", number)) for number in range(4)]
        wait_for(lambda: len(writer.writer.files) == 4, "the files are open")

        def is_served() -> bool:
            with opened(writer, "tenth") as tenth:
                tenth.ask(BATCH_BYTES)
                try:
                    while not (reply := tenth.next_reply()).credit:
                        if reply.HasField("error"):
                            return False
                except grpc.RpcError:
                    return False
                tenth.batch(1, BATCH)
                tenth.finish(1, 1000)
                tenth.half_close()
                return tenth.last_reply().receipt.rows == 1000

        wait_for(is_served, "a place for the tenth")
        wait_for(lambda: len(writer.writer.files) <= 3, "the tenth's file is closed")
        assert len(writer.writer.files) >= 2, "a tenant keeps its share"
        assert "more than its share of the open files" in first_that_ends(idle).replied.error.message
