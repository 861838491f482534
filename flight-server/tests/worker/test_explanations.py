# SPDX-License-Identifier: Apache-2.0
"""Notes that a worker adds to errors about a module that the pool lacks, or a file that it hides from functions."""

import errno
import os
import platform
import sys
from pathlib import Path

import pytest

from updraft.errors import UserError
from updraft.functions.failures import raised
from updraft_server.worker.explanations import explain


def explained(error: BaseException) -> UserError:
    explain(error)
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


_OF_FILES = "where functions can write to their worker's scratch directory (tempfile, TMPDIR)"


def refused(number: int, path: Path | str | None) -> OSError:
    return OSError(number, os.strerror(number), path and str(path))


def test_a_file_that_cannot_be_written_is_explained(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.touch()
    for error in (
        refused(errno.EROFS, tmp_path / "new"),
        refused(errno.EROFS, None),
        # The user has permission, so only the pool's rules can have refused it.
        refused(errno.EACCES, tmp_path / "new"),
        refused(errno.EPERM, there),
    ):
        text = explained(error).message
        assert f"It ran on the Updraft pool at {platform.node()}, {_OF_FILES}" in text
        assert "--writable-paths" in text


def test_what_anybody_would_be_refused_is_not_explained(tmp_path: Path) -> None:
    for error in (
        refused(errno.ENOENT, tmp_path / "new"),
        refused(errno.EACCES, "/nowhere/at/all"),
        refused(errno.EACCES, None),
        refused(errno.ECONNREFUSED, None),
    ):
        assert _OF_FILES not in explained(error).message


def test_an_error_that_a_file_caused_is_explained_once(tmp_path: Path) -> None:
    error = RuntimeError("the cache cannot be written")
    error.__cause__ = refused(errno.EROFS, tmp_path / "new")
    error.__cause__.__cause__ = refused(errno.EROFS, tmp_path / "newer")
    assert explained(error).message.count("It ran on") == 1
