# SPDX-License-Identifier: Apache-2.0
"""Attempts of a hostile function (tests/attacks) in the workers' container of a restricted pod."""

from __future__ import annotations

import contextlib
import json
import pickle
import secrets
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from pyspark import cloudpickle

from tests.attacks import (
    alters,
    alters_processes,
    alters_rights,
    attempts,
    exhausts,
    hides_memory,
    kills,
    lies,
    reads,
    reads_files,
    reads_network,
    survives,
)
from tests.attacks.attempts import Verdict, carried, shifted, verdict_of
from tests.attacks.exchanges import BrokenExchangeError, Exchange
from tests.kube.cluster import SEALED, Release
from tests.kube.conftest import SEALED_TOKEN
from tests.kube.executors import AUTHORITY
from tests.kube.namespace import Namespace
from tests.support.waiting import until

_POOL, _ONE_USER = "pool-default", f"pool-{SEALED}"
"""Pool whose two containers have different users, and pool whose containers share one."""
_RUNTIME = "/run/updraft/front"
_OWN_BROADCAST, _VICTIMS_BROADCAST = 2, 1
_REFUSED = [
    *reads.ATTEMPTS,
    *reads_files.ATTEMPTS,
    *reads_network.ATTEMPTS,
    *alters.ATTEMPTS,
    *alters_processes.ATTEMPTS,
    # Pods cannot mount, so the directory's permissions are protected only by its name, which cannot be listed.
    *(attempt for attempt in alters_rights.ATTEMPTS if attempt is not alters_rights.rights_of_the_scratch_of_another),
]
# Shared mappings too large for a pod's small /dev/shm become files of the scratch directory, which are not memory.
_ENDED = [attempt for attempt in exhausts.ENDED if attempt is not exhausts.memory_that_is_shared]
# Same limits as `exhausts.LIMITS` for a pool on this machine.
_SMALL_LIMITS = {
    "workerMemoryBytes": 256 << 20,
    "workerProcesses": 24,
    "workerScratchBytes": 64 << 20,
    "workerFileBytes": 64 << 20,
    "workerDescriptors": 512,
}
_ERRORS_OF_LIMITS = ("EFBIG", "EMFILE", "EPERM", "EACCES", "ENOSYS", "EINVAL", "ENOPROTOOPT", "ENOSPC")
# Attempts that end only their own worker.
_ENDS_ITS_WORKER = ("its_own", "both_ways")


class PoolInAPod:
    """Pod of a pool, with a victim whose exchange stays open, and an attacker."""

    def __init__(self, release: Release, component: str, token: str, authority: bytes | None = None) -> None:
        """Connect to a pool with this token, and over TLS if there is an authority."""
        self._release = release
        self._component = component
        self._pod = release.pods(component)[0]
        self._token = token
        address = f"{self._pod.status.pod_ip}:8815"
        if authority is None:
            self._channel = grpc.insecure_channel(address)
        else:
            # The certificate names the Service, not the pod.
            options = [("grpc.ssl_target_name_override", release.host(component))]
            self._channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(authority), options)
        self._restarts = self._restarts_of_the_pod()
        self._victim = self._exchange("app-of-the-victim", _keeps_a_secret, _VICTIMS_BROADCAST)
        told = json.loads(self._victim.ask())
        self._victims_pid = told["victim"]
        with self._exchange("app-of-the-attacker", _path_of_broadcast, _OWN_BROADCAST) as own:
            own_artifact = own.ask()
        self._surroundings = SimpleNamespace(
            **told,
            own_artifact=own_artifact,
            # In the workers' container the front's number means nothing, and PID 1 is the supervisor.
            front=1,
            supervisor=1,
            supervisors_group=1,
            is_root=False,
            tokens="/etc/updraft/tokens/tokens",
            key="/etc/updraft/tls/tls.key",
            shifted_token=shifted(self._token),
            ready_file=f"{_RUNTIME}/ready",
            metrics="127.0.0.1:9825",
            admin="127.0.0.1:8825",
            metrics_token=f"{_RUNTIME}/metrics-token",
            runtime=_RUNTIME,
            artifacts=f"{_RUNTIME}/artifacts",
            reversed_secret=secrets.token_hex(16),
            audit="/var/log/updraft/audit",
            callbacks_at_the_end=1000,
            # Terminal of a user who looks into the container.
            terminal="/dev/pts/0",
        )

    def attempt(self, attempt: Callable[[Any], Any], *, application: str = "app-of-the-attacker") -> Verdict:
        """Run the attempt in an exchange of its own and return its verdict."""
        number = _OWN_BROADCAST if application == "app-of-the-attacker" else None
        try:
            with self._exchange(application, carried(attempt, self._surroundings), number) as exchange:
                return verdict_of(exchange.ask())
        except BrokenExchangeError as error:
            return Verdict(died=True, ended=str(error))

    def check_unharmed(self) -> None:
        """Check that no container restarted, the victim's exchange works, and a newcomer is served."""
        assert json.loads(self._victim.ask())["victim"] == self._victims_pid
        assert self.attempt(_is_well, application="app-of-a-newcomer") == Verdict(evidence="'well'")
        assert self._restarts_of_the_pod() == self._restarts

    def close(self) -> None:
        self._victim.cancel()
        self._channel.close()

    def _restarts_of_the_pod(self) -> int:
        return self._release.restarts(self._component)[self._pod.metadata.name]

    def _exchange(self, application: str, function: Callable[[Any], Any], broadcast: int | None) -> Exchange:
        broadcasts = None if broadcast is None else {broadcast: pickle.dumps(application)}
        return Exchange(self._channel, self._token, application, function, broadcasts)


def _is_well(_: Any) -> str:
    return "well"


def _keeps_a_secret(column: Any) -> Any:
    import builtins
    import json
    import os
    import tempfile

    import pyarrow as pa
    from pyspark.broadcast import _broadcastRegistry

    if not hasattr(builtins, "kept"):
        file = tempfile.NamedTemporaryFile(mode="w", delete=False)  # noqa: SIM115 - kept
        file.write("a secret")
        file.flush()
        vars(builtins)["kept"] = file
    told = {
        "victim": os.getpid(),
        "zygote": os.getppid(),
        "victims_file": vars(builtins)["kept"].name,
        "victims_artifact": _broadcastRegistry[1]._path,
    }
    return pa.array([json.dumps(told)] * len(column))


def _path_of_broadcast(column: Any) -> Any:
    import pyarrow as pa
    from pyspark.broadcast import _broadcastRegistry

    return pa.array([_broadcastRegistry[2]._path] * len(column))


_HERE = sys.modules[__name__]
for _module in (
    alters,
    alters_processes,
    alters_rights,
    attempts,
    exhausts,
    hides_memory,
    kills,
    lies,
    reads,
    reads_files,
    reads_network,
    survives,
    _HERE,
):
    cloudpickle.register_pickle_by_value(_module)


@pytest.fixture(scope="module")
def pool(release: Release) -> Iterator[PoolInAPod]:
    release.scale(_POOL, 1)
    pool = until("a pod serves", lambda: PoolInAPod(release, _POOL, release.token(_POOL)), timeout_seconds=60)
    with contextlib.closing(pool):
        yield pool
    release.scale(_POOL, 2)


@pytest.fixture(scope="module")
def pool_of_one_user(release: Release, namespace: Namespace) -> Iterator[PoolInAPod]:
    with contextlib.closing(_pool_of_one_user(release, namespace)) as pool:
        yield pool


@pytest.fixture(scope="module")
def pool_with_small_limits(
    release: Release, namespace: Namespace, pool_of_one_user: PoolInAPod
) -> Iterator[PoolInAPod]:
    # Otherwise the old pod would wait for the victim's exchange.
    pool_of_one_user.close()
    limits = {f"pools.{SEALED}.workers.settings.{name}": str(value) for name, value in _SMALL_LIMITS.items()}
    release.upgrade(**limits)
    until("the pod before is gone", lambda: len(release.pods(_ONE_USER)) == 1, timeout_seconds=180)
    try:
        with contextlib.closing(_pool_of_one_user(release, namespace)) as pool:
            yield pool
    finally:
        release.rollback()


def _pool_of_one_user(release: Release, namespace: Namespace) -> PoolInAPod:
    authority = namespace.secret(AUTHORITY)["ca.crt"].encode()
    return until("a pod serves", lambda: PoolInAPod(release, _ONE_USER, SEALED_TOKEN, authority), timeout_seconds=60)


def _named(attempt: Callable[[Any], Any]) -> str:
    return attempt.__name__


@pytest.mark.parametrize("attempt", _REFUSED, ids=_named)
def test_a_function_in_a_pod_fails(pool: PoolInAPod, attempt: Callable[[Any], Any]) -> None:
    verdict = pool.attempt(attempt)
    pool.check_unharmed()
    assert verdict.failed, verdict
    assert not verdict.died, verdict


@pytest.mark.parametrize("attempt", _REFUSED, ids=_named)
def test_a_function_in_a_pod_of_one_user_fails(pool_of_one_user: PoolInAPod, attempt: Callable[[Any], Any]) -> None:
    verdict = pool_of_one_user.attempt(attempt)
    pool_of_one_user.check_unharmed()
    assert verdict.failed, verdict
    assert not verdict.died, verdict


@pytest.mark.parametrize("attempt", _ENDED, ids=_named)
def test_a_function_in_a_pod_cannot_take_too_much(
    pool_with_small_limits: PoolInAPod, attempt: Callable[[Any], Any]
) -> None:
    verdict = pool_with_small_limits.attempt(attempt)
    pool_with_small_limits.check_unharmed()
    assert not verdict.evidence, verdict
    # The pod's /dev/shm has 64 MiB, so it runs out of room before the limit is reached.
    if "memory_in" in attempt.__name__ or "memory_that_is_shared" in attempt.__name__:
        assert verdict.died or verdict.refused == "ENOSPC", verdict
    else:
        assert "the limit is" in verdict.ended, verdict


@pytest.mark.parametrize("attempt", [*exhausts.REFUSED, *hides_memory.REFUSED], ids=_named)
def test_a_function_in_a_pod_meets_the_limits_that_the_kernel_holds(
    pool_with_small_limits: PoolInAPod, attempt: Callable[[Any], Any]
) -> None:
    verdict = pool_with_small_limits.attempt(attempt)
    pool_with_small_limits.check_unharmed()
    assert verdict.refused in _ERRORS_OF_LIMITS, verdict
    assert not verdict.died, verdict


@pytest.mark.parametrize("attempt", [*kills.ATTEMPTS], ids=_named)
def test_a_function_in_a_pod_cannot_kill(pool: PoolInAPod, attempt: Callable[[Any], Any]) -> None:
    verdict = pool.attempt(attempt)
    pool.check_unharmed()
    assert verdict.failed, verdict
    assert verdict.died == attempt.__name__.startswith(_ENDS_ITS_WORKER), verdict


@pytest.mark.parametrize("attempt", [*lies.ATTEMPTS], ids=_named)
def test_a_function_in_a_pod_that_lies_breaks_its_own_exchange(pool: PoolInAPod, attempt: Callable[[Any], Any]) -> None:
    verdict = pool.attempt(attempt)
    pool.check_unharmed()
    assert verdict.died, verdict


@pytest.mark.parametrize("residue", survives.RESIDUES, ids=lambda residue: residue.name)
def test_nothing_survives_in_a_pod(pool: PoolInAPod, residue: survives.Residue) -> None:
    left = pool.attempt(residue.leave)
    noticed = pool.attempt(residue.notice, application="app-that-comes-later")
    pool.check_unharmed()
    assert not left.broken, left
    assert noticed.failed, noticed
    assert not noticed.died, noticed
