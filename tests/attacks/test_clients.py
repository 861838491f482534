# SPDX-License-Identifier: Apache-2.0
"""Every attempt of a hostile client of a pool receives an allowed status, and costs others nothing."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from issuing import entry, key_set

from tests.attacks import client_connections, client_messages, clients, parted_clients, token_clients
from tests.attacks.memory_watch import MemoryWatch
from tests.attacks.outsiders import ClientAttempt
from tests.attacks.pool_under_attack import PoolUnderAttack
from tests.attacks.until_harmed import UntilHarmed
from tests.support.waiting import until

_KEEPALIVE_SECONDS = 1.0
# The front's own memory, plus what can arrive between two checks of its memory, plus what its allocator keeps.
_BEYOND_BYTES = 1000 * clients.MIB


class PoolAndNeighbours:
    """Pool whose victim sends keepalives, and the amounts that the pool held at the last check."""

    def __init__(self, directory: Path) -> None:
        self._log, self._audit = directory / "log", directory / "audit"
        keys, identities = directory / "keys.json", directory / "identities.toml"
        keys.write_bytes(key_set(token_clients.ISSUERS_KEY, token_clients.ISSUERS_OTHER_KEY))
        identities.write_text(entry(f'keys_file = "{keys}"', tenants=token_clients.TENANTS))
        self._ended = threading.Event()
        log = self._log.open("wb")
        self.pool = PoolUnderAttack(
            directory,
            2,
            *clients.SETTINGS,
            f"--identities-file={identities}",
            constants=clients.CONSTANTS,
            stderr=log,
        )
        log.close()
        self._alive = threading.Thread(target=self._keep_alive)

    def __enter__(self) -> PoolAndNeighbours:
        self.pool.__enter__()
        self._alive.start()
        self._checked_bytes = self._metric("updraft_artifact_store_bytes")
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._alive.join()
        self.pool.close()

    def _keep_alive(self) -> None:
        while not self._ended.wait(_KEEPALIVE_SECONDS):
            self.pool.keep_victim_alive()

    def check_unharmed(self) -> None:
        """Check that the pool has released everything (processes, places, memory, disk) and serves others."""
        self.pool.check_unharmed()
        until("nobody waits", lambda: self._metric("updraft_exchanges_waiting") == 0)
        until("the victim alone has an exchange", lambda: self._metric("updraft_exchanges_running") == 1)
        assert self._metric("updraft_artifact_store_bytes") <= self._checked_bytes
        assert self._peak_bytes < clients.QUEUE_BYTES + _BEYOND_BYTES
        # Lines that are not JSON come from the supervisor or from gRPC's own library.
        others = [line for line in self._log.read_bytes().splitlines() if not line.startswith(b"{")]
        assert not [line for line in others if not re.match(rb"updraft-server: |[IWE]\d{4} |WARNING: ", line)], others
        assert b"forged" not in b"".join(others)
        self._check_records()

    def _check_records(self) -> None:
        """Check that the pool itself wrote each line of the audit log."""
        # Skip the last line, because the pool may still be writing it.
        whole, _, _ = self._audit.read_bytes().rpartition(b"\n")
        for line in whole.splitlines():
            assert line.isascii()
            record = json.loads(line)
            assert record["service"] == "pool"
            assert record["event"] in ("opened", "ended", "refused"), record

    @property
    def _peak_bytes(self) -> int:
        status = Path(f"/proc/{self.pool.surroundings.front}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found
        return int(found[1]) * 1024

    def _metric(self, name: str) -> float:
        found = re.search(rf"^{name} (\S+)$", self.pool.metrics(), re.MULTILINE)
        assert found, name
        return float(found[1])


Pools = UntilHarmed[PoolAndNeighbours]


@pytest.fixture(scope="module")
def pools() -> Iterator[Pools]:
    with contextlib.closing(UntilHarmed(PoolAndNeighbours)) as pools:
        yield pools


def _name(attempt: ClientAttempt) -> str:
    return attempt.name


@pytest.mark.parametrize(
    "attempt",
    [*clients.ATTEMPTS, *client_messages.ATTEMPTS, *client_connections.ATTEMPTS, *token_clients.ATTEMPTS],
    ids=_name,
)
def test_a_client_harms_nobody(pools: Pools, attempt: ClientAttempt) -> None:
    with pools.unharmed() as neighbours, neighbours.pool.outsider() as outsider:
        outsider.victims_bytes = neighbours.pool.victims_bytes
        outsider.is_another_served = neighbours.pool.check_unharmed
        told: Any = set(attempt.run(outsider) or ())
        # At this point, all connections of the hostile client are still open.
        neighbours.pool.check_unharmed()
    assert told <= attempt.told, told


@pytest.mark.parametrize("attempt", [*parted_clients.ATTEMPTS], ids=_name)
def test_parts_harm_nobody_and_take_the_memory_that_was_sent(pools: Pools, attempt: ClientAttempt) -> None:
    with pools.unharmed() as neighbours, neighbours.pool.outsider() as outsider:
        outsider.is_another_served = neighbours.pool.check_unharmed
        with MemoryWatch(neighbours.pool.server.process.pid) as watch:
            told: Any = set(attempt.run(outsider) or ())
            neighbours.pool.check_unharmed()
    assert told <= attempt.told, told
    # The client sends at most a quarter of a batch, and claims that the batch is four times as large.
    assert 0 < watch.peak_bytes < parted_clients.GIB
