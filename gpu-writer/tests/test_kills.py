# SPDX-License-Identifier: Apache-2.0
"""Producers and connections that die at any moment: what is there is whole, and nothing is held for them."""

import random
import subprocess
import sys
import threading
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
            assert all(Path(path).exists() for path in finished)
        writer.becomes_empty()
        published = list(tmp_path.glob("*"))
        assert len(published) >= KILLED_PRODUCERS
        for path in published:
            assert pq.read_table(path).num_rows == producer.ROWS * producer.BATCHES


def part_of_an_exchange(writer: RunningWriter, name: str, steps: int) -> None:
    """The first `steps` steps of writing a file; then the call is cancelled."""
    with RawExchange(writer.address, SCHEMA, command(writer.root / name)) as exchange:
        todo = [
            lambda: exchange.ask(8000),
            lambda: exchange.next_reply() and None,
            lambda: exchange.batch(1, BATCH),
            lambda: exchange.finish(1, 1000),
            exchange.half_close,
        ]
        try:
            for step in todo[:steps]:
                step()
        except (grpc.RpcError, StopIteration):
            return
        exchange.call.cancel()


def test_calls_that_are_cancelled_at_any_step_leave_whole_files_or_none(tmp_path: Path) -> None:
    choose = random.Random(4)
    with running_writer(tmp_path) as writer:
        calls = [
            threading.Thread(target=part_of_an_exchange, args=(writer, f"{index}.parquet", choose.randrange(6)))
            for index in range(CANCELLED_CALLS)
        ]
        for call in calls:
            call.start()
        for call in calls:
            call.join()
        writer.becomes_empty()
        for path in tmp_path.glob("*.parquet"):
            assert pq.read_table(path).num_rows == 1000
