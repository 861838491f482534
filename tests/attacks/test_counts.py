# SPDX-License-Identifier: Apache-2.0
"""SECURITY.md states the right number of attempts, each counted once."""

from __future__ import annotations

import pytest

from tests.attacks import (
    alters,
    alters_processes,
    alters_rights,
    client_connections,
    client_messages,
    clients,
    exhausts,
    floods,
    hides_memory,
    kills,
    lies,
    lingers,
    reads,
    reads_files,
    reads_network,
    signed_clients,
    survives,
    token_clients,
    uses_time,
    writer_clients,
)

_OF_FUNCTIONS = [
    *(module.ATTEMPTS for module in (reads, reads_files, reads_network, alters, alters_processes, alters_rights)),
    *(kills.ATTEMPTS, lies.ATTEMPTS, floods.ATTEMPTS, exhausts.ENDED, exhausts.REFUSED, hides_memory.REFUSED),
    *(uses_time.CPU, uses_time.WITHOUT_CLOCK, lingers.REPLACED, lingers.STOPPED),
]
_OF_CLIENTS = (clients, client_messages, client_connections, token_clients, signed_clients, writer_clients)


@pytest.mark.parametrize(
    ("names", "at_least"),
    [
        (
            [
                *(f"{attempt.__module__}.{attempt.__name__}" for group in _OF_FUNCTIONS for attempt in group),
                *(f"survives.{residue.name}" for residue in survives.RESIDUES),
            ],
            250,
        ),
        ([f"{module.__name__}.{attempt.name}" for module in _OF_CLIENTS for attempt in module.ATTEMPTS], 100),
    ],
    ids=["functions", "clients"],
)
def test_there_are_as_many_attempts_as_there_are_said_to_be(names: list[str], at_least: int) -> None:
    assert len(set(names)) == len(names) >= at_least
