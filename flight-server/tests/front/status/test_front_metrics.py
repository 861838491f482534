# SPDX-License-Identifier: Apache-2.0
"""Metrics of a front."""

import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from fake_pool import FakePool
from flight_messages import (
    all_replies,
    batch,
    command_request,
    echo_command,
    finish,
    path_request,
)
from front_calls import Gate, in_a_thread, pyarrow_echo
from front_harness import Running

from updraft_server.ipc.batch_record import BatchRecord
from updraft_server.ipc.model_packets import ModelReplica, ModelUsage


async def test_metrics_count_exchanges_and_bytes(running_front: Running) -> None:
    async with running_front(FakePool(), metrics_listen="127.0.0.1:0") as front:
        await in_a_thread(pyarrow_echo, f"grpc://{front.address}")
        url = f"http://{front.settings.metrics_address}/metrics"
        text = await in_a_thread(lambda: urllib.request.urlopen(url).read().decode())
        assert 'updraft_exchanges_total{function="echo",outcome="ok"} 1.0' in text
        assert 'updraft_workers{state="idle"} 1.0' in text
        assert "updraft_exchanges_waiting 0.0" in text
        assert 'updraft_pool_sandbox_layer{layer="seccomp"} 1.0' in text
        assert 'updraft_pool_sandbox_layer{layer="capabilities"} 0.0' in text


async def test_metrics_say_what_model_processes_hold_and_have_done(running_front: Running) -> None:
    pool = FakePool()
    record = BatchRecord()
    for rows in (500, 600):
        record.batches.add(rows)
    record.waits.add(0.004)
    replicas = [ModelReplica(f"model-{number}", number, 1, "ready", 1024, 0) for number in range(2)]
    pool.model_usage = [ModelUsage("sentiment", "2", replicas, 3, 1, 2, record.to_plain())]
    async with running_front(pool, metrics_listen="127.0.0.1:0") as front:
        url = f"http://{front.settings.metrics_address}/metrics"
        text = await in_a_thread(lambda: urllib.request.urlopen(url).read().decode())
    labels = 'function="sentiment"'
    for series in (
        f'updraft_model_batch_rows_bucket{{{labels},le="256.0",version="2"}} 0.0',
        f'updraft_model_batch_rows_bucket{{{labels},le="512.0",version="2"}} 1.0',
        f'updraft_model_batch_rows_bucket{{{labels},le="+Inf",version="2"}} 2.0',
        f'updraft_model_batch_rows_sum{{{labels},version="2"}} 1100.0',
        f'updraft_model_wait_seconds_bucket{{{labels},le="0.005",version="2"}} 1.0',
        f'updraft_model_wait_seconds_count{{{labels},version="2"}} 1.0',
        f'updraft_model_loads_total{{{labels},version="2"}} 3.0',
        f'updraft_model_evictions_total{{{labels},version="2"}} 1.0',
        f'updraft_model_deaths_total{{{labels},version="2"}} 2.0',
        f'updraft_model_memory_bytes{{{labels},version="2"}} 2048.0',
        f'updraft_model_processes{{{labels},state="ready",version="2"}} 2.0',
    ):
        assert series in text


@pytest.mark.parametrize("page", ["metrics", "status", "status.json"])
async def test_who_observes_needs_a_token_where_there_is_a_file_of_them(
    running_front: Running, tmp_path: Path, page: str
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("right\n")

    def ask(url: str, token: str) -> int:
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return int(reply.status)
        except urllib.error.HTTPError as error:
            return error.code

    settings: dict[str, Any] = {"metrics_listen": "127.0.0.1:0", "metrics_token_file": tokens}
    async with running_front(FakePool(), **settings) as front:
        url = f"http://{front.settings.metrics_address}/{page}"
        assert [await in_a_thread(ask, url, token) for token in ("", "wrong", "right")] == [401, 401, 200]


async def test_metrics_say_what_ended_workers_and_how_long_the_pool_lacked_them(running_front: Running) -> None:
    pool = FakePool(workers=2)
    async with running_front(pool, metrics_listen="127.0.0.1:0", workers=2) as front:
        pool.changed()
        pool.exits["signal"], pool.idle = 1, 1
        pool.changed()
        pool.idle = 2
        pool.changed()
        url = f"http://{front.settings.metrics_address}/metrics"
        text = await in_a_thread(lambda: urllib.request.urlopen(url).read().decode())
        assert 'updraft_worker_exits_total{reason="signal"} 1.0' in text
        assert "updraft_healing_seconds_count 1.0" in text


async def test_metrics_tell_applications_apart_and_their_stages_while_they_run(running_front: Running) -> None:
    gate = Gate()
    async with running_front(FakePool(script=gate.script), metrics_listen="127.0.0.1:0") as front:
        url = f"http://{front.settings.metrics_address}/metrics"
        call = front.exchange()
        await call.write(command_request(echo_command()))
        await call.read()
        text = await in_a_thread(lambda: urllib.request.urlopen(url).read().decode())
        assert 'updraft_stage_exchanges{application="app-1",phase="running",stage="2.0"} 1.0' in text
        gate.opened.set()
        await call.write(batch(1))
        await call.write(finish(1, rows=10))
        await call.done_writing()
        await all_replies(call)
        text = await in_a_thread(lambda: urllib.request.urlopen(url).read().decode())
        assert 'updraft_application_exchanges_total{application="app-1",outcome="ok"} 1.0' in text
        assert 'updraft_application_rows_total{application="app-1"} 10.0' in text
        assert 'updraft_rows_total{function="echo"} 10.0' in text
        assert 'updraft_batch_seconds_count{function="echo"} 1.0' in text
        assert 'stage="2.0"' not in text


async def test_a_name_that_does_not_exist_becomes_no_series(running_front: Running) -> None:
    async with running_front(FakePool(), metrics_listen="127.0.0.1:0") as front:
        call = front.exchange()
        await call.write(path_request("invented-by-a-client"))
        await all_replies(call)
        url = f"http://{front.settings.metrics_address}/metrics"
        text = await in_a_thread(lambda: urllib.request.urlopen(url).read().decode())
        assert "invented-by-a-client" not in text
