# SPDX-License-Identifier: Apache-2.0
import signal
from pathlib import Path

import pytest

from updraft_server.ipc.loading_note import LoadingNote
from updraft_server.supervisor.broken_modules import BrokenModules


@pytest.fixture
def modules(tmp_path: Path) -> BrokenModules:
    return BrokenModules(tmp_path / "loading")


def dies_in(modules: BrokenModules, module: str, code: int) -> str:
    """A zygote that ends within the block leaves the note behind."""
    modules.note.write_text(module)
    return modules.zygote_ended(code)


@pytest.mark.parametrize("code", [-signal.SIGSEGV, 3, 0])
def test_a_module_that_ends_the_zygote_is_broken_until_functions_are_loaded_again(
    modules: BrokenModules, code: int
) -> None:
    assert dies_in(modules, "bad", code) == "bad"
    assert list(modules.faults) == ["bad"]
    assert "'bad' of --functions cannot be imported" in modules.faults["bad"]
    modules.forget()
    assert modules.faults == {}


def test_a_module_is_not_at_fault_for_what_others_have_killed_once(modules: BrokenModules) -> None:
    assert dies_in(modules, "good", -signal.SIGKILL) == ""
    assert dies_in(modules, "other", -signal.SIGKILL) == ""
    assert dies_in(modules, "other", -signal.SIGKILL) == "other"


def test_a_zygote_that_ends_while_it_runs_no_module_blames_none(modules: BrokenModules) -> None:
    with LoadingNote(modules.note).of("good"):
        assert modules.note.read_text() == "good"
    assert modules.zygote_ended(-signal.SIGSEGV) == ""
