# SPDX-License-Identifier: Apache-2.0
import os
from pathlib import Path

import pytest

from updraft.functions import Batching
from updraft_server.worker.model import process
from updraft_server.worker.model.process import THREADS, VISIBLE_DEVICES, take_share


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*THREADS, VISIBLE_DEVICES):
        # Set before deleting, so that the original value is restored afterwards.
        monkeypatch.setenv(name, "1")
    monkeypatch.delenv(VISIBLE_DEVICES)


@pytest.mark.parametrize(
    ("visible", "number", "device"), [("", 0, "0"), ("", 1, "1"), ("", 3, "1"), ("4, 6", 1, "6"), ("4,6", 2, "4")]
)
def test_each_replica_sees_the_next_one_of_the_pools_gpus(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, visible: str, number: int, device: str
) -> None:
    for name in ("nvidia0", "nvidia5", "nvidiactl"):
        (tmp_path / name).touch()
    monkeypatch.setattr(process, "_FIRST_DEVICE", tmp_path / "nvidia0")
    monkeypatch.setenv(VISIBLE_DEVICES, visible)
    take_share(Batching(device="cuda", replicas=4), number)
    assert os.environ[VISIBLE_DEVICES] == device


def test_the_first_gpu_is_looked_for_where_none_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(process, "_FIRST_DEVICE", tmp_path / "nvidia0")
    take_share(Batching(device="cuda", replicas=4), 3)
    assert os.environ[VISIBLE_DEVICES] == "0"


def test_a_model_without_a_device_sees_what_the_pool_sees() -> None:
    take_share(Batching(), 1)
    assert VISIBLE_DEVICES not in os.environ


def test_replicas_share_the_cpus_unless_their_author_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    for batching, threads in ((Batching(), "8"), (Batching(replicas=3), "2"), (Batching(replicas=20), "1")):
        take_share(batching, 0)
        assert {os.environ[name] for name in THREADS} == {threads}
    take_share(Batching(threads=5, replicas=3), 0)
    assert {os.environ[name] for name in THREADS} == {"5"}
