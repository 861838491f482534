# SPDX-License-Identifier: Apache-2.0
"""Registered functions that use a GPU, in workers and model processes, and GPU memory after these are killed."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import gpu_functions
import numpy as np
import pyarrow as pa
import pytest
import torch
from docs.examples.functions.digits_torch import DigitTorch
from gpu_functions import HELD_BYTES
from pyarrow import flight
from served_pool import HANG_SECONDS, Server
from sklearn.datasets import load_digits

EXAMPLES = Path(__file__).resolve().parents[3] / "docs/examples/functions"
NUMBERS = pa.schema([pa.field("number", pa.int64())])
WORKERS = 4


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("pool")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(Path(gpu_functions.__file__).parent), str(EXAMPLES)]))
        patch.setenv("HOME", str(directory))
        options = ("--functions=gpu_functions,digits_torch", f"--workers={WORKERS}", "--session-functions=off")
        started = Server(directory, *options)
        yield started
        started.stop()


def called(server: Server, name: str, batch: pa.RecordBatch) -> list[int]:
    with server.client() as client:
        writer, reader = client.do_exchange(flight.FlightDescriptor.for_path(name))
        writer.begin(batch.schema)
        writer.write_batch(batch)
        writer.done_writing()
        return list(reader.read_all().column(0).to_pylist())


def numbers(*values: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, pa.int64())], schema=NUMBERS)


def pid_of(server: Server, name: str) -> int | None:
    """Return the process id, or None if the pool has not yet noticed that a process ended: the call may be repeated."""
    try:
        [pid] = called(server, name, numbers(1))
    except pa.ArrowException:
        return None
    return pid


def used_bytes() -> int:
    free, total = torch.cuda.mem_get_info()
    return int(total - free)


def until(condition: Callable[[], bool]) -> None:
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < HANG_SECONDS
        time.sleep(0.05)


def test_the_example_s_network_runs_on_the_gpu_and_answers_as_one_does_outside_of_a_pool(server: Server) -> None:
    pictures, digits = load_digits(return_X_y=True)
    answers = called(server, "digit_torch", pa.record_batch({"pixels": list(pictures)}))
    here = cast(Any, DigitTorch).target()
    assert here._device.type == "cuda"
    assert answers == here(pa.array(list(pictures))).to_pylist()
    assert np.mean(np.array(answers) == digits) > 0.97


@pytest.mark.parametrize("name", ["worker_holds", "model_holds"])
def test_what_a_killed_process_held_on_the_gpu_is_free_again_and_another_process_answers(
    server: Server, name: str
) -> None:
    [pid] = called(server, name, numbers(1))
    held = used_bytes()
    os.kill(pid, signal.SIGKILL)
    until(lambda: pid_of(server, name) not in (None, pid))
    until(lambda: abs(used_bytes() - held) < HELD_BYTES // 2)


def test_a_model_process_whose_gpu_has_failed_is_replaced(server: Server) -> None:
    assert called(server, "breaks", numbers(1, 2)) == [1, 2]
    with pytest.raises(pa.ArrowException, match="process"):
        called(server, "breaks", numbers(-1))
    assert called(server, "breaks", numbers(3)) == [3]


def test_replicas_that_outnumber_the_gpus_share_them(server: Server) -> None:
    answers = {tuple(called(server, "device_of", numbers(1))) for _ in range(8)}
    assert answers == {(1,)}
