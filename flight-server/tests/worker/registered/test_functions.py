# SPDX-License-Identifier: Apache-2.0
"""Which function a name and a version mean, and what is wrong with those that cannot be called."""

from typing import Any

import pytest

from updraft import function
from updraft.errors import FunctionNotFoundError, FunctionRefusedError
from updraft.functions import Function
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
    with pytest.raises(FunctionRefusedError, match="version '1' is defined twice"):
        functions.find("price", "1").load()
    functions.find("price", "2").load()


@pytest.mark.parametrize("failure", [OSError("no weights"), SystemExit(3)])
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
    with pytest.raises(FunctionRefusedError, match=type(failure).__name__):
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
