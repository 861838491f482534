# SPDX-License-Identifier: Apache-2.0
"""Hooks that a local pool puts into PySpark and IPython, and how it restores the originals."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from updraft.spark import interrupts
from updraft.spark.interrupts import JobInterrupts


class _SparkContext:
    """Part of PySpark's SparkContext that the hooks use."""

    _active_spark_context: Any = None

    def __init__(self) -> None:
        self.tags: set[str] = set()
        self.cancelled: list[tuple[str, threading.Thread]] = []

    def addJobTag(self, tag: str) -> None:  # noqa: N802 - PySpark's name
        self.tags.add(tag)

    def removeJobTag(self, tag: str) -> None:  # noqa: N802
        self.tags.remove(tag)

    def cancelJobsWithTag(self, tag: str) -> None:  # noqa: N802
        self.cancelled.append((tag, threading.current_thread()))

    def cancelAllJobs(self) -> None:  # noqa: N802
        self.cancelled.append(("all", threading.current_thread()))


class _Client:
    """Part of py4j's client that the hooks use: a call of the JVM, which a test has to answer."""

    def __init__(self, answer_seconds: float = 0.0) -> None:
        self._answer_seconds = answer_seconds
        self.has_answered = False

    def send_command(self, _command: str) -> str:
        signal.raise_signal(signal.SIGINT)
        until = time.monotonic() + self._answer_seconds
        while time.monotonic() < until:
            time.sleep(0.01)
        self.has_answered = True
        return "the job was cancelled"


class _Events:
    """Part of IPython's events that the hooks use."""

    def __init__(self) -> None:
        self.callbacks: list[tuple[str, Callable[[object], None]]] = []

    def register(self, event: str, callback: Callable[[object], None]) -> None:
        self.callbacks.append((event, callback))

    def unregister(self, event: str, callback: Callable[[object], None]) -> None:
        self.callbacks.remove((event, callback))

    def trigger(self, event: str) -> None:
        for name, callback in list(self.callbacks):
            if name == event:
                callback(None)


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> _SparkContext:
    kind: Any = type("SparkContext", (_SparkContext,), {"cancelAllJobs": _SparkContext.cancelAllJobs})
    pyspark = ModuleType("pyspark")
    pyspark.SparkContext = kind  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyspark", pyspark)
    context: _SparkContext = kind()
    kind._active_spark_context = context
    return context


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> _Events:
    found = _Events()
    shell = ModuleType("IPython")
    shell.get_ipython = lambda: SimpleNamespace(events=found)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", shell)
    return found


@pytest.fixture
def hooks() -> Iterator[JobInterrupts]:
    # A shell lets its background processes ignore SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    hooks = JobInterrupts()
    hooks.acquire()
    yield hooks
    hooks.release()
    signal.signal(signal.SIGINT, before)


def test_all_jobs_are_cancelled_from_another_thread_until_the_last_pool_has_ended(
    context: _SparkContext, hooks: JobInterrupts
) -> None:
    context.cancelAllJobs()
    hooks.acquire()
    hooks.release()
    context.cancelAllJobs()
    assert [thread is threading.main_thread() for _, thread in context.cancelled] == [False, False]
    hooks.release()
    context.cancelAllJobs()
    assert context.cancelled[-1] == ("all", threading.main_thread())
    hooks.acquire()


def test_an_interrupted_cell_cancels_its_own_jobs_and_then_is_interrupted(
    events: _Events, context: _SparkContext, hooks: JobInterrupts
) -> None:
    before = signal.getsignal(signal.SIGINT)
    events.trigger("pre_run_cell")
    (tag,) = context.tags
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    ((cancelled, thread),) = context.cancelled
    assert cancelled == tag
    assert thread is not threading.main_thread()
    events.trigger("post_run_cell")
    assert not context.tags
    assert signal.getsignal(signal.SIGINT) is before
    events.trigger("pre_run_cell")
    assert context.tags
    assert context.tags != {tag}
    events.trigger("post_run_cell")


def test_a_cell_is_interrupted_even_if_the_jvm_is_gone(
    events: _Events, context: _SparkContext, hooks: JobInterrupts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_tag: str) -> None:
        raise ConnectionError("the JVM is gone")

    monkeypatch.setattr(context, "cancelJobsWithTag", fail)
    events.trigger("pre_run_cell")
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    monkeypatch.setattr(context, "removeJobTag", fail)
    events.trigger("post_run_cell")


def test_hooks_are_removed_in_the_middle_of_a_cell(events: _Events, context: _SparkContext) -> None:
    before = signal.getsignal(signal.SIGINT)
    hooks = JobInterrupts()
    hooks.acquire()
    events.trigger("pre_run_cell")
    assert signal.getsignal(signal.SIGINT) is not before
    hooks.release()
    assert signal.getsignal(signal.SIGINT) is before
    assert not events.callbacks
    assert not context.tags


def test_another_thread_leaves_the_handler_to_the_end_of_the_cell(events: _Events, context: _SparkContext) -> None:
    before = signal.getsignal(signal.SIGINT)
    hooks = JobInterrupts()
    hooks.acquire()
    events.trigger("pre_run_cell")
    stopping = threading.Thread(target=hooks.release)
    stopping.start()
    stopping.join()
    events.trigger("post_run_cell")
    assert signal.getsignal(signal.SIGINT) is before
    assert not events.callbacks
    assert not context.tags


def test_a_handler_that_calls_the_one_before_it_makes_no_circle(
    events: _Events, context: _SparkContext, hooks: JobInterrupts
) -> None:
    before = signal.getsignal(signal.SIGINT)
    events.trigger("pre_run_cell")
    ours: Any = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, lambda number, frame: ours(number, frame))
    events.trigger("post_run_cell")
    events.trigger("pre_run_cell")
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert len(context.cancelled) == 1, "only the jobs of the running cell are cancelled"
    finally:
        events.trigger("post_run_cell")
        signal.signal(signal.SIGINT, before)


def test_a_call_of_the_jvm_is_answered_before_its_cell_is_interrupted(
    events: _Events, context: _SparkContext, hooks: JobInterrupts
) -> None:
    client = _calls_of(context, _Client(answer_seconds=0.1))
    events.trigger("pre_run_cell")
    with pytest.raises(KeyboardInterrupt):
        _called_by_spark(client)
    assert client.has_answered
    assert [tag for tag, _ in context.cancelled] == list(context.tags)
    events.trigger("post_run_cell")
    assert "send_command" not in vars(client)


def test_a_call_that_is_not_answered_is_interrupted_and_late_jobs_are_cancelled(
    events: _Events, context: _SparkContext, hooks: JobInterrupts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interrupts, "_ANSWER_TIMEOUT_SECONDS", 0.05)
    monkeypatch.setattr(interrupts, "_CANCEL_AGAIN_SECONDS", 0.01)
    client = _calls_of(context, _Client(answer_seconds=60))
    events.trigger("pre_run_cell")
    with pytest.raises(KeyboardInterrupt):
        _called_by_spark(client)
    assert not client.has_answered
    seen = len(context.cancelled)
    deadline = time.monotonic() + 60
    while len(context.cancelled) == seen:
        assert time.monotonic() < deadline, "jobs that start late are not cancelled"
        time.sleep(0.01)
    events.trigger("post_run_cell")


def test_an_interrupt_between_calls_of_the_jvm_waits_only_for_a_moment(
    events: _Events, context: _SparkContext, hooks: JobInterrupts
) -> None:
    _calls_of(context, _Client())
    events.trigger("pre_run_cell")
    names: dict[str, Any] = {"__name__": "pyspark.sql.classic.dataframe", "signal": signal, "time": time}
    exec("def rows():\n    signal.raise_signal(signal.SIGINT)\n    time.sleep(60)", names)
    began_at = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        names["rows"]()
    assert time.monotonic() - began_at < interrupts._ANSWER_TIMEOUT_SECONDS
    events.trigger("post_run_cell")


def test_an_interrupt_in_a_terminal_leaves_the_jobs_of_other_threads_alone(
    events: _Events, context: _SparkContext, hooks: JobInterrupts
) -> None:
    def handler_of_pyspark(_number: int, _frame: object) -> None:
        context.cancelAllJobs()
        raise KeyboardInterrupt

    handler_of_pyspark.__module__ = "pyspark.core.context"
    signal.signal(signal.SIGINT, handler_of_pyspark)
    events.trigger("pre_run_cell")
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert [tag for tag, _ in context.cancelled] == list(context.tags)
    events.trigger("post_run_cell")
    assert signal.getsignal(signal.SIGINT) is handler_of_pyspark


def test_a_second_interrupt_does_not_wait(
    events: _Events, context: _SparkContext, hooks: JobInterrupts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interrupts, "_ANSWER_TIMEOUT_SECONDS", 60.0)
    client = _calls_of(context, _Client(answer_seconds=30))
    events.trigger("pre_run_cell")
    threading.Timer(0.1, signal.pthread_kill, (threading.get_ident(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        _called_by_spark(client)
    assert not client.has_answered
    events.trigger("post_run_cell")


def test_code_of_the_user_is_interrupted_at_once(events: _Events, context: _SparkContext, hooks: JobInterrupts) -> None:
    client = _calls_of(context, _Client())
    events.trigger("pre_run_cell")
    with pytest.raises(KeyboardInterrupt):
        # This module does not belong to Spark.
        client.send_command("from a test")
    assert not client.has_answered
    events.trigger("post_run_cell")


def test_the_client_of_spark_connect_is_interrupted_at_once(
    events: _Events, context: _SparkContext, hooks: JobInterrupts
) -> None:
    """The context of its local server is in this process, but the client does not call that JVM."""
    client = _calls_of(context, _Client())
    events.trigger("pre_run_cell")
    with pytest.raises(KeyboardInterrupt):
        _called_by_spark(client, "pyspark.sql.connect.client.core")
    assert not client.has_answered
    events.trigger("post_run_cell")


def _calls_of(context: Any, client: _Client) -> _Client:
    context._gateway = SimpleNamespace(_gateway_client=client)
    return client


def _called_by_spark(client: _Client, module: str = "pyspark.sql.classic.dataframe") -> None:
    names: dict[str, Any] = {"__name__": module, "client": client}
    exec("def collect():\n    client.send_command('collectToPython')", names)
    names["collect"]()


def test_a_jvm_that_hangs_does_not_hold_up_an_interrupt(
    context: _SparkContext, hooks: JobInterrupts, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = threading.Event()
    finished: list[bool] = []
    monkeypatch.setattr(interrupts, "_CANCEL_TIMEOUT_SECONDS", 0.01)

    def cancel(_context: object) -> None:
        hangs.wait(60)
        finished.append(True)

    interrupts._in_another_thread(cancel)(context)
    assert not finished
    hangs.set()


def test_a_process_without_spark_is_left_alone(events: _Events, hooks: JobInterrupts) -> None:
    before = signal.getsignal(signal.SIGINT)
    events.trigger("pre_run_cell")
    assert signal.getsignal(signal.SIGINT) is before
    events.trigger("post_run_cell")
