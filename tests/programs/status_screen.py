# SPDX-License-Identifier: Apache-2.0
"""`make status-screen`: take the screenshot of a busy pool's status page for the docs, in a real browser."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pyarrow as pa

from tests.browser.browser import chromium
from tests.support.flight import Reply, echo_command, exchange, finishing, first_message, ipc_parts, numbered
from tests.support.paths import REPOSITORY
from tests.support.pool import LocalPool
from updraft.v1 import exchange_pb2

_PICTURE = REPOSITORY / "docs/images/status-page.png"
_CLIENTS, _WORKERS = 4, 3
_SHOWN_SECONDS = 90
_WIDTH, _HEIGHT = 1240, 1460
_ROWS, _BATCH_SECONDS = 20_000, 0.3
_APPLICATION = "app-20261121174403-0007"


def main() -> None:
    """Keep a pool busy for some time, then take a screenshot of the pool's status page."""
    done = Event()
    with LocalPool(workers=_WORKERS, session_functions="off") as pool, ThreadPoolExecutor(_CLIENTS) as clients:
        partitions = itertools.count(200)
        work = [clients.submit(_work, pool, partitions, done) for _ in range(_CLIENTS)]
        try:
            for name in ("prices", "fx_rates"):
                _one(pool, name, partition=0)
            time.sleep(_SHOWN_SECONDS)
            _photograph(f"http://{pool.metrics_address}/status")
        finally:
            done.set()
        for each in work:
            each.result()
    print(_PICTURE.relative_to(REPOSITORY))


def _photograph(url: str) -> None:
    size = {"width": _WIDTH, "height": _HEIGHT, "deviceScaleFactor": 1, "mobile": False}
    with chromium() as browser:
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get(url)
        browser.save_screenshot(str(_PICTURE))


def _work(pool: LocalPool, partitions: Iterator[int], done: Event) -> None:
    while not done.is_set():
        _one(pool, "echo", partition=next(partitions))


def _one(pool: LocalPool, name: str, *, partition: int) -> Reply:
    """Run one task, which sends its batch after a pause."""
    command = echo_command(name=name)
    command.task.CopyFrom(
        exchange_pb2.TaskIdentity(
            owner=exchange_pb2.Owner(application_id=_APPLICATION),
            query_id="12",
            stage_id=17,
            partition_id=partition,
            task_attempt_id=partition,
        )
    )
    return exchange(pool.tcp_address, _requests(command))


def _requests(command: exchange_pb2.ExchangeCommand) -> Iterator[Any]:
    batch = pa.RecordBatch.from_pydict({"_0": pa.array(range(_ROWS), pa.int64())})
    (schema, _), (header, body) = ipc_parts(batch.schema, [batch])
    yield first_message(command, schema)
    time.sleep(_BATCH_SECONDS)
    yield numbered(header, body, 1)
    time.sleep(_BATCH_SECONDS)
    yield finishing(1, _ROWS)


if __name__ == "__main__":
    main()
