# SPDX-License-Identifier: Apache-2.0
"""Every attempt of a hostile client of a writer receives an allowed status, and costs others nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial

import pytest

from tests.attacks import parted_clients, writer_clients
from tests.attacks.outsiders import ClientAttempt
from tests.attacks.until_harmed import UntilHarmed
from tests.attacks.writer_under_attack import WriterUnderAttack

Writers = UntilHarmed[WriterUnderAttack]


@pytest.fixture(scope="module", params=[0, 2], ids=["one-process", "receivers"])
def writers(request: pytest.FixtureRequest) -> Iterator[Writers]:
    with contextlib.closing(UntilHarmed(partial(WriterUnderAttack, receivers=request.param))) as writers:
        yield writers


def _name(attempt: ClientAttempt) -> str:
    return attempt.name


@pytest.mark.parametrize("attempt", [*writer_clients.ATTEMPTS, *parted_clients.WRITER_ATTEMPTS], ids=_name)
def test_a_client_harms_nobody(writers: Writers, attempt: ClientAttempt) -> None:
    with writers.unharmed() as writer, writer.outsider() as outsider:
        outsider.root, outsider.outside = writer.root, writer.outside
        outsider.is_another_served = writer.check_served
        told = set(attempt.run(outsider) or ())
        # At this point, all connections of the hostile client are still open.
        writer.check_served()
    assert told <= attempt.told, told
