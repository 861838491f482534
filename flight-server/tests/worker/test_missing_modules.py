# SPDX-License-Identifier: Apache-2.0
"""What a worker adds to an error about a module that the pool lacks."""

import platform
import sys

import pytest

from updraft.errors import UserError
from updraft.functions.failures import raised
from updraft_server.worker.missing_modules import explain_missing_module


def explained(error: BaseException) -> UserError:
    explain_missing_module(error)
    return raised(error)


def _import_what_is_not_there() -> None:
    __import__("a_module_that_nobody_has")


def test_a_missing_module_is_explained() -> None:
    with pytest.raises(ModuleNotFoundError) as caught:
        _import_what_is_not_there()
    error = explained(caught.value)
    assert error.first_line() == "ModuleNotFoundError: No module named 'a_module_that_nobody_has'"
    assert error.exception_class == "ModuleNotFoundError"
    # Spark shows the traceback, clients of plain Flight the message.
    for text in (error.traceback, error.message):
        assert f"\nIt ran on the Updraft pool at {platform.node()}, where functions import from" in text


def test_the_explanation_names_the_environment_wherever_the_pool_runs() -> None:
    """On a laptop or a VM there is no image, and the environment may be the driver's own."""
    with pytest.raises(ModuleNotFoundError) as caught:
        _import_what_is_not_there()
    note = explained(caught.value).traceback.rpartition("It ran on")[2]
    assert f"import from the Python in {sys.prefix} and from what the session sends. Install the package there" in note
    assert "where the pool runs in containers, build it into the image" in note
    assert "docs/" not in note


def _raise_for_what_is_not_there() -> None:
    try:
        _import_what_is_not_there()
    except ModuleNotFoundError as missing:
        raise RuntimeError("this needs it") from missing


def _do_without_what_is_not_there() -> None:
    try:
        _import_what_is_not_there()
    except ModuleNotFoundError:
        raise RuntimeError("the replacement fails for another reason")  # noqa: B904 - the chain that Python makes


def test_an_error_that_a_missing_module_caused_is_explained() -> None:
    with pytest.raises(RuntimeError) as caught:
        _raise_for_what_is_not_there()
    assert "It ran on the Updraft pool at" in explained(caught.value).traceback


def test_an_error_of_code_that_can_do_without_a_module_is_not_about_the_module() -> None:
    with pytest.raises(RuntimeError) as caught:
        _do_without_what_is_not_there()
    assert "It ran on" not in explained(caught.value).traceback


def test_an_error_that_is_its_own_cause_ends() -> None:
    error = ValueError("round and round")
    error.__cause__ = error
    assert "It ran on" not in explained(error).traceback
