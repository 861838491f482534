# SPDX-License-Identifier: Apache-2.0
"""Producers and connections that die at any moment: every published file is complete, and nothing is held for them."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import grpc
import producer
import pyarrow as pa
import pyarrow.parquet as pq
from running_writer import RawExchange, RunningWriter, command, running_writer

SCHEMA = pa.schema({"n": pa.int64()})
BATCH = pa.record_batch({"n": pa.arange(0, 1000, 1)})
KILLED_PRODUCERS = 5
CANCELLED_CALLS = 100
STEPS_BEFORE_FINISH = 3
# All steps up to the receipt, and the option of none at all.
MOST_STEPS = 7


def test_killed_producers_leave_whole_files_and_no_reservation(tmp_path: Path) -> None:
    script = str(Path(producer.__file__))
    with running_writer(tmp_path) as writer:
        for files_before_the_kill in range(KILLED_PRODUCERS):
            process = subprocess.Popen(
                [sys.executable, script, writer.address, str(tmp_path)], stdout=subprocess.PIPE, text=True
            )
            assert process.stdout is not None
            finished = [process.stdout.readline().strip() for _ in range(files_before_the_kill + 1)]
            process.kill()
            finished += process.stdout.read().split()
            process.wait()
            process.stdout.close()
            assert all(path and Path(path).exists() for path in finished)
        writer.becomes_empty()
        published = list(tmp_path.glob("*"))
        assert len(published) >= KILLED_PRODUCERS
        for path in published:
            assert pq.read_table(path).num_rows == producer.ROWS * producer.BATCHES


def part_of_an_exchange(writer: RunningWriter, name: str, steps: int) -> bool:
    """Do the first `steps` steps of writing a file, then cancel; return whether the receipt came."""
    with RawExchange(writer.address, SCHEMA, command(writer.root / name)) as exchange:
        todo = [
            lambda: exchange.ask(8000),
            lambda: exchange.next_reply() and None,
            lambda: exchange.batch(1, BATCH),
            lambda: exchange.finish(1, 1000),
            exchange.half_close,
        ]
        with suppress(grpc.RpcError, StopIteration):
            for step in todo[:steps]:
                step()
        if steps > len(todo):
            return exchange.last_reply().HasField("receipt")
        exchange.call.cancel()
        return False


def test_calls_that_are_cancelled_at_any_step_leave_whole_files_or_none(tmp_path: Path) -> None:
    steps_of = {f"{index}.parquet": index % MOST_STEPS for index in range(CANCELLED_CALLS)}
    with running_writer(tmp_path) as writer:
        with ThreadPoolExecutor(CANCELLED_CALLS) as calls:
            received = calls.map(partial(part_of_an_exchange, writer), *zip(*steps_of.items(), strict=True))
            receipts = {name for name, received in zip(steps_of, received, strict=True) if received}
        writer.becomes_empty()
        published = {path.name for path in tmp_path.glob("*")}
        finished = {name for name, steps in steps_of.items() if steps > STEPS_BEFORE_FINISH}
        assert receipts == {name for name, steps in steps_of.items() if steps == MOST_STEPS - 1}
        assert receipts <= published <= finished
        for name in published:
            assert pq.read_table(tmp_path / name).num_rows == BATCH.num_rows
