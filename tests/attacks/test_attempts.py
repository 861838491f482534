# SPDX-License-Identifier: Apache-2.0
"""Every attempt of a hostile function fails, and costs other owners nothing."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import psutil
import pytest
from mounting import needs_mounts

from tests.attacks import (
    alters,
    alters_processes,
    alters_rights,
    exhausts,
    floods,
    hides_memory,
    kills,
    lies,
    lingers,
    reads,
    reads_files,
    reads_network,
    uses_time,
)
from tests.attacks.exchanges import Exchange
from tests.attacks.memory_watch import MemoryWatch
from tests.attacks.pool_under_attack import PoolUnderAttack
from tests.attacks.survives import NOT_YET, RESIDUES, Residue
from tests.attacks.until_harmed import UntilHarmed
from tests.attacks.worker_exchanges import WorkerExchange
from tests.support.waiting import until

Pools = UntilHarmed[PoolUnderAttack]


def pools_of(workers: int, *arguments: str, **options: Any) -> contextlib.closing[Pools]:
    return contextlib.closing(UntilHarmed(lambda directory: PoolUnderAttack(directory, workers, *arguments, **options)))


# Upper bound for a front: it forwards messages one by one, and gRPC holds messages that its client has not read yet.
_MOST_BYTES_OF_A_FRONT = 512 << 20
_ERRORS_OF_LIMITS = ("EFBIG", "EMFILE", "EPERM", "EACCES", "ENOSYS", "EINVAL", "ENOPROTOOPT", "ENOSPC")


@pytest.fixture(scope="module", params=[Exchange, WorkerExchange])
def kind(request: pytest.FixtureRequest) -> type[Exchange]:
    """Return the kind of exchange in which the function attacks."""
    return cast("type[Exchange]", request.param)


@pytest.fixture(scope="module")
def pools(kind: type[Exchange]) -> Iterator[Pools]:
    with pools_of(2, attacks_in=kind) as pools:
        yield pools


@pytest.fixture(scope="module")
def pools_of_one_worker(kind: type[Exchange]) -> Iterator[Pools]:
    with pools_of(1, attacks_in=kind) as pools:
        yield pools


@pytest.fixture(scope="module")
def pools_with_small_limits(kind: type[Exchange]) -> Iterator[Pools]:
    with pools_of(2, *exhausts.LIMITS, attacks_in=kind) as pools:
        yield pools


@pytest.fixture(scope="module")
def pools_with_little_time(kind: type[Exchange]) -> Iterator[Pools]:
    with pools_of(2, *uses_time.LIMITS, attacks_in=kind) as pools:
        yield pools


@pytest.mark.parametrize(
    "attempt",
    [*reads.ATTEMPTS, *reads_files.ATTEMPTS, *reads_network.ATTEMPTS],
    ids=lambda attempt: attempt.__name__,
)
def test_a_function_cannot_read(pools: Pools, attempt: Callable[[Any], Any]) -> None:
    with pools.unharmed() as pool:
        verdict = pool.attempt(attempt)
    assert verdict.failed, verdict
    assert not verdict.died, verdict


@pytest.mark.parametrize(
    "attempt", [*alters.ATTEMPTS, *alters_processes.ATTEMPTS], ids=lambda attempt: attempt.__name__
)
def test_a_function_cannot_alter(pools: Pools, attempt: Callable[[Any], Any]) -> None:
    with pools.unharmed() as pool:
        verdict = pool.attempt(attempt)
    assert verdict.failed, verdict
    assert not verdict.died, verdict


@needs_mounts
@pytest.mark.parametrize("attempt", [*alters_rights.ATTEMPTS], ids=lambda attempt: attempt.__name__)
def test_a_function_cannot_alter_rights(pools: Pools, attempt: Callable[[Any], Any]) -> None:
    with pools.unharmed() as pool:
        verdict = pool.attempt(attempt)
    assert verdict.failed, verdict
    assert not verdict.died, verdict


@pytest.mark.parametrize("attempt", [*kills.ATTEMPTS], ids=lambda attempt: attempt.__name__)
def test_a_function_cannot_kill(pools: Pools, attempt: Callable[[Any], Any]) -> None:
    with pools.unharmed() as pool:
        # Use another worker for each attempt, because earlier attempts leave descriptors open.
        verdict = pool.attempt(attempt, application=f"app-of-{attempt.__name__}")
    assert verdict.failed, verdict
    assert verdict.died == attempt.__name__.startswith(("its_own", "both_ways")), verdict


@pytest.mark.parametrize("attempt", [*lies.ATTEMPTS], ids=lambda attempt: attempt.__name__)
def test_a_function_that_lies_breaks_its_own_exchange(pools: Pools, attempt: Callable[[Any], Any]) -> None:
    with pools.unharmed() as pool, MemoryWatch(pool.surroundings.front) as watch:
        verdict = pool.attempt(attempt)
    assert verdict.died, verdict
    assert 0 < watch.peak_bytes < _MOST_BYTES_OF_A_FRONT


@pytest.mark.parametrize("attempt", [*floods.ATTEMPTS], ids=lambda attempt: attempt.__name__)
def test_output_beyond_the_limit_is_dropped(pools: Pools, attempt: Callable[[Any], Any]) -> None:
    with pools.unharmed() as pool, MemoryWatch(pool.surroundings.front) as watch:
        before = pool.dropped_lines()
        verdict = pool.attempt(attempt)
        until("the pool has counted what it dropped", lambda: pool.dropped_lines() > before)
    assert verdict.failed, verdict
    assert not verdict.died, verdict
    assert 0 < watch.peak_bytes < _MOST_BYTES_OF_A_FRONT


@pytest.mark.parametrize("attempt", [*exhausts.ENDED], ids=lambda attempt: attempt.__name__)
def test_a_function_that_takes_too_much_is_ended_and_told(
    pools_with_small_limits: Pools, attempt: Callable[[Any], Any]
) -> None:
    with pools_with_small_limits.unharmed() as pool:
        verdict = pool.attempt(attempt)
    assert verdict.died, verdict
    limits = {"programs": "--worker-processes", "threads": "--worker-processes", "scratch": "--worker-scratch-bytes"}
    assert "the limit is" in verdict.ended, verdict
    assert limits.get(attempt.__name__.partition("_")[0], "--worker-memory-bytes") in verdict.ended, verdict


@pytest.mark.parametrize("attempt", [*lingers.REPLACED], ids=lambda attempt: attempt.__name__)
def test_a_worker_in_which_a_function_leaves_too_much_is_replaced(
    pools_with_small_limits: Pools, attempt: Callable[[Any], Any]
) -> None:
    with pools_with_small_limits.unharmed() as pool:
        before = pool.exits("leftover")
        verdict = pool.attempt(attempt, application=attempt.__name__)
        assert verdict.failed, verdict
        # The pool may have ended the worker before its exchange ended.
        if not verdict.died:
            until("its worker is replaced", lambda: pool.exits("leftover") > before)
        else:
            assert "the limit is" in verdict.ended, verdict


def test_many_applications_compute_in_no_more_workers_than_their_tenant_may_have() -> None:
    applications = [f"application-{number}" for number in range(4)]
    with tempfile.TemporaryDirectory(prefix="updraft-attacks-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        identities = directory / "identities.toml"
        # The victim and the attacker share one cap of two workers, because both use a plain token. The victim holds one
        # worker.
        somebody = f'[[identity]]\nname = "somebody"\ntenant = "a"\nscopes = ["call"]\ntoken_sha256 = ["{"0" * 64}"]\n'
        identities.write_text(f'{somebody}[[tenant]]\nname = "*"\nmax_workers = 2\n')
        with PoolUnderAttack(directory, 5, f"--identities-file={identities}") as pool:
            workers: dict[str, int] = {}
            awake = looks = 0
            for number in range(24):
                application = applications[number % len(applications)]
                evidence = pool.attempt(lingers.a_thread_in_each_application, application=application).evidence
                workers[application] = int(evidence)
                time.sleep(0.1)
                if number > len(applications):
                    others = [worker for each, worker in workers.items() if each != application]
                    looks += len(others)
                    awake += sum(psutil.pid_exists(pid) and psutil.Process(pid).status() != "stopped" for pid in others)
            assert awake < 0.2 * looks
            pool.check_unharmed()


@pytest.mark.parametrize("attempt", [*lingers.STOPPED], ids=lambda attempt: attempt.__name__)
def test_what_waits_for_the_end_of_its_exchange_never_runs(
    pools_with_small_limits: Pools, attempt: Callable[[Any], Any]
) -> None:
    with pools_with_small_limits.unharmed() as pool:
        verdict = pool.attempt(attempt, application=attempt.__name__)
        assert verdict.failed, verdict
        assert not verdict.died, verdict
        until("its worker is stopped", lambda: "stopped" in pool.states())


@pytest.mark.parametrize("attempt", [*exhausts.REFUSED, *hides_memory.REFUSED], ids=lambda attempt: attempt.__name__)
def test_a_function_meets_the_limits_that_the_kernel_holds(
    pools_with_small_limits: Pools, attempt: Callable[[Any], Any]
) -> None:
    with pools_with_small_limits.unharmed() as pool:
        verdict = pool.attempt(attempt)
    assert verdict.refused in _ERRORS_OF_LIMITS, verdict
    assert not verdict.died, verdict


@pytest.mark.parametrize("attempt", [*uses_time.CPU], ids=lambda attempt: attempt.__name__)
def test_a_function_that_uses_too_much_cpu_time_is_ended_and_told(
    pools_with_little_time: Pools, attempt: Callable[[Any], Any]
) -> None:
    with pools_with_little_time.unharmed() as pool:
        verdict = pool.attempt(attempt)
    assert verdict.died, verdict
    assert "seconds of CPU time for one batch, the limit is 3, and its worker was ended" in verdict.ended, verdict


@pytest.mark.parametrize("attempt", [*uses_time.WITHOUT_CLOCK], ids=lambda attempt: attempt.__name__)
def test_a_function_that_stops_its_clock_is_ended_and_told(
    pools_with_little_time: Pools, attempt: Callable[[Any], Any]
) -> None:
    with pools_with_little_time.unharmed() as pool:
        verdict = pool.attempt(attempt)
    assert verdict.died, verdict
    assert "worked for more than 5 seconds on one batch" in verdict.ended, verdict


def test_a_function_that_kills_its_workers_again_and_again_is_held_back(kind: type[Exchange]) -> None:
    constants = {"updraft_server.front.limits.deaths.ALLOWED_DEATHS": 3}
    # Use a directory with a path short enough for a Unix socket, unlike pytest's.
    with (
        tempfile.TemporaryDirectory(prefix="updraft-attacks-", ignore_cleanup_errors=True) as directory,
        PoolUnderAttack(Path(directory), 2, constants=constants, attacks_in=kind) as pool,
    ):
        ends = [pool.attempt(exhausts.its_own_worker).ended for _ in range(5)]
        assert ["is held back for" in end for end in ends] == [False, False, False, True, True]
        assert "of application 'app-of-the-attacker' has killed 3 workers" in ends[-1]
        pool.check_unharmed()


def _as_parameter(residue: Residue) -> Any:
    reason = NOT_YET.get(residue.name)
    marks = [pytest.mark.xfail(strict=True, reason=reason)] if reason else []
    return pytest.param(residue, id=residue.name, marks=marks)


@pytest.mark.parametrize("residue", [*map(_as_parameter, RESIDUES)])
def test_nothing_survives_into_the_exchange_of_another(pools_of_one_worker: Pools, residue: Residue) -> None:
    with pools_of_one_worker.unharmed() as pool:
        left = pool.attempt(residue.leave)
        noticed = pool.later(residue.notice)
    assert not left.broken, left
    assert noticed.failed, noticed
    assert not noticed.died, noticed
