# SPDX-License-Identifier: Apache-2.0
"""Connector's own client, if a name has several pods: an exchange goes to a pod that has a free worker."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pyspark

from tests.support.flight import echo_command, exchange, finishing, first_message, ipc_parts, pool_status
from tests.support.java import run_java
from tests.support.paths import connector_jar
from tests.support.pool import LocalPool
from tests.support.waiting import until

_SOURCE = Path(__file__).parent / "java/SessionClient.java"
_SPARK_JARS = Path(pyspark.__file__).parent / "jars/*"
_BATCH = pa.RecordBatch.from_pydict({"_0": pa.array([1, 2, 3], pa.int64())})
# A client tries each pod first with equal probability. All of them miss the busy one in one of 100,000 runs.
_MOST_CLIENTS = 17


@contextmanager
def _busy(pool: LocalPool) -> Iterator[None]:
    """Hold the pool's only worker with an exchange that sends nothing."""
    ends = Event()

    def requests() -> Iterator[Any]:
        yield first_message(echo_command(), ipc_parts(_BATCH.schema, [])[0][0])
        ends.wait()
        yield finishing(0, 0)

    with ThreadPoolExecutor(1) as thread:
        holding = thread.submit(exchange, pool.tcp_address, requests())
        try:
            until("the worker is busy", lambda: pool_status(pool.tcp_address).workers_busy)
            yield
        finally:
            ends.set()
            holding.result()


def _answer(port: str, hosts: Path) -> list[Any]:
    """Run one exchange, and return its results."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _BATCH.schema) as writer:
        writer.write_batch(_BATCH)
    command = echo_command()
    # A different task than in `_busy`, whose exchanges get extra workers.
    command.task.task_attempt_id += 1
    encoded, batch = (base64.b64encode(part).decode() for part in (command.SerializeToString(), sink.getvalue()))
    text = f"command {encoded}\nbatch 0  {batch}\n"
    class_path = f"{connector_jar()}:{_SPARK_JARS}"
    line = run_java(
        class_path, _SOURCE, f"grpc://pods.test:{port}", text=text, options=[f"-Djdk.net.hosts.file={hosts}"]
    )
    answer: list[Any] = pa.ipc.open_stream(base64.b64decode(line.split()[-1])).read_all().column(0).to_pylist()
    return answer


def _refused(pool: LocalPool) -> int:
    found = re.search(r"^updraft_exchanges_refused_busy_total (\S+)$", pool.page("/metrics")[0], re.MULTILINE)
    assert found
    return int(float(found[1]))


def test_an_exchange_does_not_wait_at_a_busy_pod_while_another_one_has_a_free_worker(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 pods.test localhost\n127.0.0.2 pods.test\n")
    with LocalPool(workers=1) as busy:
        port = busy.tcp_address.rpartition(":")[2]
        with LocalPool(workers=1, arguments=["--listen", f"127.0.0.2:{port}"]) as free, _busy(busy):
            for _ in range(_MOST_CLIENTS):
                assert _answer(port, hosts) == [1, 2, 3]
                if _refused(busy):
                    break
            assert _refused(busy) == 1
            assert _refused(free) == 0
