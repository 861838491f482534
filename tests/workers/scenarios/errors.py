# SPDX-License-Identifier: Apache-2.0
"""Functions that raise, exit, die or never end, and the output of such functions."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import InheritableThread, TaskContext
from pyspark.sql import SparkSession

from tests.support.waiting import until
from tests.workers.confs import application_confs
from tests.workers.directories import new_directory
from tests.workers.failures import failure
from tests.workers.scenario import scenario
from tests.workers.scenarios.rdds import numbers


class RefusedError(Exception):
    """Exception that the driver's script defines."""


def _first_attempt() -> bool:
    context = TaskContext.get()
    assert context is not None
    return bool(context.attemptNumber() == 0)


@scenario(everyday=True)
def exception(spark: SparkSession) -> Any:
    def inner(number: int) -> int:
        if number == 7:
            raise ValueError(f"{number} is refused")
        return number

    def outer(number: int) -> int:
        return inner(number) + 1

    return failure(lambda: numbers(spark, 10, 1).map(outer).collect())


@scenario()
def exception_of_a_class_of_the_script(spark: SparkSession) -> Any:
    def refuse(number: int) -> int:
        raise RefusedError("refused", number)

    return failure(lambda: numbers(spark, 1, 1).map(refuse).collect())


@scenario()
def exception_with_a_cause(spark: SparkSession) -> Any:
    def convert(number: int) -> int:
        try:
            return int("no number")
        except ValueError as error:
            raise RuntimeError("because of another") from error

    return failure(lambda: numbers(spark, 1, 1).map(convert).collect())


@scenario()
def exception_in_a_chain(spark: SparkSession) -> Any:
    chain = numbers(spark, 4, 1).map(lambda n: n - 2).filter(lambda n: True).flatMap(lambda n: [n, n])
    return failure(lambda: chain.map(lambda n: 1 // n).sum())


@scenario()
def exception_in_a_shuffle(spark: SparkSession) -> Any:
    rdd = numbers(spark, 10, 1).map(lambda n: (n % 2, n))
    return failure(lambda: rdd.reduceByKey(lambda a, b: a / 0, 1).collect())


@scenario()
def exception_after_many_rows(spark: SparkSession) -> Any:
    def late(number: int) -> int:
        if number == 90_000:
            raise ValueError("late")
        return number

    return failure(lambda: numbers(spark, 100_000, 1).map(late).count())


@scenario()
def exception_while_the_input_is_large(spark: SparkSession) -> Any:
    def refuse(part: Any) -> Any:
        next(part)
        raise ValueError("the rest of the input is unread")

    made = numbers(spark, 30, 1).map(lambda n: b"x" * (1 << 20)).cache()
    try:
        made.count()
        return failure(lambda: made.mapPartitions(refuse).count())
    finally:
        made.unpersist(blocking=True)


@scenario()
def stop_iteration(spark: SparkSession) -> Any:
    def stop(number: int) -> int:
        raise StopIteration

    return failure(lambda: numbers(spark, 4, 1).map(stop).collect())


@scenario()
def system_exit(spark: SparkSession) -> Any:
    return failure(lambda: numbers(spark, 4, 1).map(lambda n: sys.exit(3)).collect())


@scenario()
def missing_module(spark: SparkSession) -> Any:
    return failure(lambda: numbers(spark, 1, 1).map(lambda n: __import__("a_module_that_nobody_has")).collect())


@scenario()
def result_that_cannot_be_pickled(spark: SparkSession) -> Any:
    return failure(lambda: numbers(spark, 1, 1).map(lambda n: threading.Lock()).collect())


@scenario()
def exception_and_then_another_attempt(spark: SparkSession) -> Any:
    def once(part: Any) -> Any:
        if _first_attempt():
            raise ValueError("the first attempt")
        return [sum(part)]

    return numbers(spark, 100, 2).mapPartitions(once).collect()


def _deaths(spark: SparkSession, die: Callable[[int], Any]) -> Any:
    """Return the attempts of a task whose worker always dies, and the answer of another job afterwards."""
    directory = str(new_directory())

    def attempt(number: int) -> Any:
        if number == 0:
            context = TaskContext.get()
            assert context is not None
            Path(directory, str(context.attemptNumber())).touch()
        return die(number)

    failure(lambda: numbers(spark, 100, 1).map(attempt).count())
    return sorted(path.name for path in Path(directory).iterdir()), numbers(spark, 100).map(lambda n: n + 1).sum()


@scenario()
def worker_exits(spark: SparkSession) -> Any:
    return _deaths(spark, lambda n: os._exit(3))


@scenario()
def worker_dies_by_a_signal(spark: SparkSession) -> Any:
    return _deaths(spark, lambda n: os.kill(os.getpid(), signal.SIGKILL))


@scenario()
def worker_dies_after_output(spark: SparkSession) -> Any:
    def die(number: int) -> bytes:
        if number == 50:
            os.kill(os.getpid(), signal.SIGKILL)
        return b"x" * 100_000

    return _deaths(spark, die)


def _crash(number: int) -> int:
    import ctypes

    return ctypes.string_at(0)[0]


@scenario()
def worker_crashes_in_native_code(spark: SparkSession) -> Any:
    return _deaths(spark, _crash)


@scenario()
def stack_of_a_worker_that_crashes(spark: SparkSession) -> Any:
    """Crash, and look for the Python stack in the error."""
    with application_confs(spark, {"spark.python.worker.faulthandler.enabled": "true"}):
        try:
            numbers(spark, 1, 1).map(_crash).collect()
        except Py4JJavaError as error:
            found = re.findall(r"Fatal Python error: Segmentation fault| in _crash\b", str(error))
            assert found, "the error has no stack"
            return sorted(set(found))
    raise AssertionError("the worker has not crashed")


@scenario()
def error_of_a_worker_that_dies(spark: SparkSession) -> Any:
    found = failure(lambda: numbers(spark, 4, 1).map(lambda n: os.kill(os.getpid(), signal.SIGKILL)).collect())
    return found["class"], found["causes"][:2]


@scenario(everyday=True)
def worker_exits_once(spark: SparkSession) -> Any:
    def exit_once(part: Any) -> Any:
        if _first_attempt():
            os._exit(3)
        return [sum(part)]

    return numbers(spark, 100, 2).mapPartitions(exit_once).collect()


@scenario()
def prints(spark: SparkSession) -> Any:
    def print_and_return(number: int) -> int:
        print("to stdout", number)
        print("to stderr", number, file=sys.stderr)
        os.write(1, b"to descriptor 1\n")
        os.write(2, b"to descriptor 2\n")
        return number

    return numbers(spark, 10).map(print_and_return).sum()


@scenario(seconds=40)
def cancelled_job_group(spark: SparkSession) -> Any:
    context = spark.sparkContext
    running = context.accumulator(0)
    found: list[Any] = []

    def sleep(number: int) -> int:
        time.sleep(600)
        return number

    def job() -> None:
        context.setJobGroup("to cancel", "a job that sleeps", interruptOnCancel=True)
        found.append(failure(lambda: numbers(spark, 2, 2).map(sleep).collect())["class"])

    thread = InheritableThread(target=job)
    thread.start()
    tracker = context._jsc.sc().statusTracker()
    until("both tasks run", lambda: sum(e.numRunningTasks() for e in tracker.getExecutorInfos()) == 2)
    context.cancelJobGroup("to cancel")
    thread.join(30)
    until("no task runs", lambda: sum(e.numRunningTasks() for e in tracker.getExecutorInfos()) == 0)
    return found, numbers(spark, 100, 4).map(lambda n: n + 1).sum(), running.value


@scenario()
def task_that_ends_early_in_a_limit(spark: SparkSession) -> Any:
    """End a task early by a limit: Spark closes the connection of a worker that still computes."""

    def slow(number: int) -> int:
        if number > 20:
            time.sleep(0.001)
        return number

    rdd = numbers(spark, 3000, 1).map(slow)
    first = rdd.map(lambda n: (n,)).toDF(["n"]).limit(3).collect()
    return [row[0] for row in first], rdd.take(5)
