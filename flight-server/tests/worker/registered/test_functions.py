# SPDX-License-Identifier: Apache-2.0
"""Lookup of functions by name and version, and the faults of those that cannot be called."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Literal

import pytest

from updraft import function
from updraft.errors import FunctionLoadError, FunctionNotFoundError
from updraft.functions import Function
from updraft_server.ipc.load import Load
from updraft_server.worker.registered.functions import RegisteredFunctions


def price(x: int) -> int:
    return x


ONE: Function[..., Any] = function(version="1")(price)
TWO: Function[..., Any] = function(version="2")(price)


def test_the_version_that_came_last_is_the_default() -> None:
    functions = RegisteredFunctions([TWO, ONE])
    assert [functions.find("price", version).version for version in ("", "1", "2")] == ["1", "1", "2"]


@pytest.mark.parametrize(
    ("name", "version", "says"),
    [("cost", "", "no function 'cost'; this pool has: price"), ("price", "3", "no version '3'.*this pool has: 1, 2")],
)
def test_what_is_not_there_is_said_with_what_is(name: str, version: str, says: str) -> None:
    with pytest.raises(FunctionNotFoundError, match=says):
        RegisteredFunctions([ONE, TWO]).find(name, version)


def test_the_same_function_may_be_found_twice() -> None:
    functions = RegisteredFunctions([ONE, ONE])
    assert functions.find("price").fault == ""


def test_two_functions_of_one_name_and_version_cannot_be_called() -> None:
    functions = RegisteredFunctions([ONE, function(version="1")(price), TWO])
    with pytest.raises(FunctionLoadError, match="version '1' is defined twice"):
        functions.find("price", "1").load()
    functions.find("price", "2").load()


@pytest.mark.parametrize("failure", [OSError("no weights"), SystemExit(3), BaseException("a panic in Rust")])
def test_a_constructor_that_fails_is_the_fault_of_its_function_alone(
    failure: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    @function(load="zygote")
    class Broken:
        def __init__(self) -> None:
            raise failure

        def __call__(self, x: int) -> int:
            return x

    broken: Any = Broken
    functions = RegisteredFunctions([broken, ONE])
    functions.load_for_workers()
    assert type(failure).__name__ in functions.find("Broken").fault
    assert functions.find("price").fault == ""
    assert type(failure).__name__ in capsys.readouterr().err
    with pytest.raises(FunctionLoadError, match=type(failure).__name__):
        functions.find("Broken").load()


def test_a_class_is_loaded_when_it_is_called_first_and_warmed_up() -> None:
    done: list[str] = []

    @function
    class Model:
        def __init__(self) -> None:
            done.append("constructed")

        def warm_up(self) -> None:
            done.append("warm")

        def __call__(self, x: int) -> int:
            return x

    model: Any = Model
    functions = RegisteredFunctions([model])
    functions.load_for_workers()
    assert done == []
    assert functions.find("Model").load() is functions.find("Model").load()
    assert done == ["constructed", "warm"]


def classes(loads_in: Literal["worker", "zygote"], load_timeout_seconds: float | None = None) -> list[Any]:
    """Return two classes, each of which reports when it is constructed."""

    class Base:
        constructed: ClassVar[list[str]] = []

        def __init__(self) -> None:
            self.constructed.append(type(self).__name__)

        def __call__(self, x: int) -> int:
            return x

    decorate: Any = function(load=loads_in, load_timeout_seconds=load_timeout_seconds)
    return [decorate(type(name, (Base,), {"__module__": "models"})) for name in ("First", "Second")]


def test_a_child_that_a_constructor_forks_goes_no_further(capfd: pytest.CaptureFixture[str]) -> None:
    @function(load="zygote")
    class Forks:
        def __init__(self) -> None:
            self.child = os.fork()

        def __call__(self, x: int) -> int:
            return x

    forks: Any = Forks
    functions = RegisteredFunctions([forks])
    functions.load_for_workers()
    loaded: Any = functions.find("Forks").load()
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 1
    # It prints nothing, except gRPC's fork warnings if another test used gRPC in this process.
    printed, written = capfd.readouterr()
    assert (printed, [line for line in written.splitlines() if "fork_posix.cc" not in line]) == ("", [])
    assert loaded is functions.find("Forks").load()


def test_what_is_known_to_end_its_process_is_at_fault_and_not_constructed() -> None:
    first, second = classes("zygote")
    functions = RegisteredFunctions([first, second])
    functions.load_for_workers({Load("models", "First", "1"): "it ends the process"})
    assert first.constructed == ["Second"]
    assert [functions.find(name).fault for name in ("First", "Second")] == ["it ends the process", ""]
    with pytest.raises(FunctionLoadError, match="function 'First' cannot be called: it ends the process"):
        functions.find("First").load()


@pytest.mark.parametrize(("own_seconds", "limit_seconds"), [(None, 20.0), (3.0, 3.0), (0.0, 0.0)])
@pytest.mark.parametrize("loads_in", ["worker", "zygote"])
def test_whoever_limits_its_time_is_told_what_is_constructed(
    loads_in: Literal["worker", "zygote"], own_seconds: float | None, limit_seconds: float
) -> None:
    told: list[Load] = []

    @contextmanager
    def running(load: Load) -> Iterator[None]:
        told.append(load)
        before = len(model.constructed)
        yield
        assert len(model.constructed) == before + 1

    model, _ = classes(loads_in, own_seconds)
    functions = RegisteredFunctions([model, ONE], load_timeout_seconds=20.0)
    functions.load_for_workers(running=running)
    for name in ("First", "First", "price"):
        functions.find(name).load(running)
    assert told == [Load("models", "First", "1")]
    assert told[0].limit_seconds == limit_seconds
