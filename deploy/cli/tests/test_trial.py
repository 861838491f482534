# SPDX-License-Identifier: Apache-2.0
"""Trial of kinds that end, and of kinds that hang."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from updraft_cli.doctor.trial import Limits, SkippedError, Trial, stop

_LONG_SECONDS = 60
_SHORT = Limits(first_seconds=0.05, later_seconds=_LONG_SECONDS, end_seconds=0.05)


def _spark(
    confs: Mapping[str, str] = {}, cancel: Callable[[], object] = list, path: Callable[[str], Any] | None = None
) -> Any:
    """Return a stand-in for a local session; `path` replaces the constructor of Hadoop's `Path`."""
    jvm = SimpleNamespace(
        org=SimpleNamespace(apache=SimpleNamespace(hadoop=SimpleNamespace(fs=SimpleNamespace(Path=path))))
    )
    context = SimpleNamespace(
        master="local[2]", cancelAllJobs=cancel, _jvm=jvm, _jsc=SimpleNamespace(hadoopConfiguration=list)
    )
    streams = SimpleNamespace(active=[])
    return SimpleNamespace(sparkContext=context, conf=confs, streams=streams, createDataFrame=lambda *_: None)


def _reported(capsys: pytest.CaptureFixture[str]) -> Sequence[Sequence[str]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def _raises(error: Exception) -> Callable[[Any], None]:
    def run(_spark: Any) -> None:
        raise error

    return run


def _hang(_spark: Any) -> None:
    threading.Event().wait()


def test_a_kind_that_hangs_is_late_and_the_next_one_is_tried(capsys: pytest.CaptureFixture[str]) -> None:
    Trial(_spark(), _SHORT).run({"hangs": _hang, "runs": lambda _: None}, {}, "/tmp")
    assert _reported(capsys)[:4] == [
        ["hangs", "begun", ""],
        ["hangs", "late", "it did not end within 0.05 seconds"],
        ["runs", "begun", ""],
        ["runs", "ok", ""],
    ]


def test_the_jobs_of_a_late_kind_end_before_the_next_one_begins(capsys: pytest.CaptureFixture[str]) -> None:
    cancelled, ended = threading.Event(), threading.Event()

    def late(_spark: Any) -> None:
        cancelled.wait()
        ended.set()

    def next_one(_spark: Any) -> None:
        assert ended.is_set()

    limits = Limits(first_seconds=0.05, later_seconds=_LONG_SECONDS, end_seconds=_LONG_SECONDS)
    Trial(_spark(cancel=cancelled.set), limits).run({"late": late, "next": next_one}, {}, "/tmp")
    assert [line for line in _reported(capsys) if line[0] == "next"] == [["next", "begun", ""], ["next", "ok", ""]]


def test_an_outcome_tells_where_code_ran_and_why_it_failed(capsys: pytest.CaptureFixture[str]) -> None:
    elsewhere = "the code ran in /usr/bin/python on a-host instead of on a pool"
    kinds = {
        "elsewhere": _raises(RuntimeError(elsewhere)),
        "failed": _raises(ValueError("a stack trace\nCaused by: the reason\nmore")),
        "skipped": _raises(SkippedError("no Connect")),
    }
    Trial(_spark(), Limits()).run(kinds, {}, "/tmp")
    assert [line for line in _reported(capsys) if line[0] in kinds and line[1] != "begun"] == [
        ["elsewhere", "elsewhere", elsewhere],
        ["failed", "failed", "the reason"],
        ["skipped", "skipped", "no Connect"],
    ]


def test_checkpoints_are_deleted_or_reported(capsys: pytest.CaptureFixture[str]) -> None:
    paths: list[str] = []

    def path(name: str) -> Any:
        paths.append(name)
        raise OSError("no space")

    streams = {"stream": lambda _, checkpoint: paths.append(checkpoint)}
    Trial(_spark({"spark.sql.streaming.checkpointLocation": "hdfs:/all"}, path=path), Limits()).run({}, streams, "/tmp")
    checkpoint, deleted = paths
    assert checkpoint == f"{deleted}/0"
    assert deleted.startswith("hdfs:/all/updraft-doctor-")
    assert _reported(capsys)[-1] == ["checkpoints", "failed", f"cannot delete {deleted}: no space"]


def test_a_spark_that_does_not_stop_is_left_to_the_doctor() -> None:
    jvm = subprocess.Popen(["sleep", "infinity"], stdin=subprocess.PIPE)
    spark = _spark()
    spark.stop = lambda: threading.Event().wait()
    spark.sparkContext._gateway = SimpleNamespace(proc=jvm)
    try:
        stop(spark, _SHORT)
        assert jvm.stdin is not None
        assert jvm.stdin.closed
    finally:
        jvm.kill()
        jvm.wait()
