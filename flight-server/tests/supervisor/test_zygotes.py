# SPDX-License-Identifier: Apache-2.0
import signal

import pytest

from updraft_server.ipc.load import Load
from updraft_server.ipc.worker_settings import WorkerSettings
from updraft_server.ipc.zygote_packets import ZygoteSettings
from updraft_server.supervisor.zygotes import BrokenLoads

MODULE = Load("bad", limit_seconds=3.0)
FUNCTION = Load("shop", "price", "1", 5.0)
KILLED = -signal.SIGKILL


@pytest.mark.parametrize("code", [-signal.SIGSEGV, 3, 0])
def test_a_module_that_ends_the_zygote_is_left_out_until_functions_are_loaded_again(code: int) -> None:
    broken = BrokenLoads()
    fault = broken.ended(MODULE, code)
    assert "the module 'bad' of --functions cannot be imported: the process that ran its code" in fault
    assert broken.faults == {MODULE: fault}
    broken.forget()
    assert broken.faults == {}


def test_a_constructor_that_ends_the_zygote_is_the_fault_of_its_function_alone() -> None:
    broken = BrokenLoads()
    fault = broken.ended(FUNCTION, -signal.SIGABRT)
    assert fault == "function 'price' cannot be loaded: the process that ran its constructor was killed by SIGABRT"
    assert list(broken.faults) == [FUNCTION]


def test_nothing_is_at_fault_for_what_others_have_killed_once() -> None:
    broken = BrokenLoads()
    assert broken.ended(FUNCTION, KILLED) == ""
    assert broken.ended(MODULE, KILLED) == ""
    assert "was killed by SIGKILL" in broken.ended(MODULE, KILLED)
    assert list(broken.faults) == [MODULE]


def test_what_was_killed_because_it_hung_is_at_fault_for_that() -> None:
    broken = BrokenLoads()
    broken.exceeded(FUNCTION, FUNCTION.lateness)
    fault = broken.ended(FUNCTION, KILLED)
    assert fault.startswith("function 'price' cannot be loaded: it did not load within 5 seconds")
    assert broken.faults == {FUNCTION: fault}


def test_a_zygote_that_ends_while_it_loads_nothing_blames_nobody() -> None:
    broken = BrokenLoads()
    assert broken.ended(None, -signal.SIGSEGV) == broken.ended(None, KILLED) == broken.ended(None, KILLED) == ""
    assert broken.faults == {}


def test_a_limit_that_has_changed_does_not_make_it_another_load() -> None:
    broken = BrokenLoads()
    broken.exceeded(FUNCTION, FUNCTION.lateness)
    assert Load("shop", "price", "1", 600.0) in broken.faults
    assert Load("shop", "price", "2", 5.0) not in broken.faults


def test_what_is_left_out_is_to_blame_for_one_death_at_most() -> None:
    broken = BrokenLoads()
    assert broken.ended(FUNCTION, -signal.SIGABRT)
    assert broken.ended(FUNCTION, -signal.SIGABRT) == ""
    assert list(broken.faults) == [FUNCTION]


@pytest.mark.parametrize("version", ["{}", "{}" + "x" * 10_000], ids=["short", "long"])
def test_no_more_are_left_out_than_a_zygote_can_be_told_of(version: str) -> None:
    broken = BrokenLoads()
    loads = (Load("shop", "price", version.format(number), 5.0) for number in range(1000))
    faults = [broken.ended(load, -signal.SIGABRT) for load in loads]
    left_out = list(broken.faults.items())
    assert 0 < len(left_out) < 1000
    assert faults == [*broken.faults.values(), *[""] * (1000 - len(left_out))]
    settings = ZygoteSettings(worker=WorkerSettings(), broken_loads=left_out)
    assert ZygoteSettings.decode(settings.encode()).broken_loads == left_out
    # The kernel's limit on a variable of the environment.
    assert len(settings.encode()) < 128 * 1024
    broken.forget()
    assert broken.ended(FUNCTION, -signal.SIGABRT)
