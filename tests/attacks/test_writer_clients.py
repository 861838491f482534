# SPDX-License-Identifier: Apache-2.0
"""Every attempt of a hostile client of a writer is answered with the right status, and costs nobody else anything."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.attacks import writer_clients
from tests.attacks.outsiders import ClientAttempt
from tests.attacks.writer_under_attack import WriterUnderAttack


class Writers:
    """One writer for all attempts as long as it is unharmed, a fresh one after that."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory
        self._open = contextlib.ExitStack()
        self._writer: WriterUnderAttack | None = None

    @contextlib.contextmanager
    def unharmed(self) -> Iterator[WriterUnderAttack]:
        """A writer, which has to be unharmed at the end of the block."""
        if self._writer is None:
            self._open.close()
            self._writer = self._open.enter_context(WriterUnderAttack(self._factory.mktemp("writer")))
        writer, self._writer = self._writer, None
        yield writer
        writer.check_unharmed()
        self._writer = writer

    def close(self) -> None:
        self._open.close()


@pytest.fixture(scope="module")
def writers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Writers]:
    with contextlib.closing(Writers(tmp_path_factory)) as writers:
        yield writers


def _name(attempt: ClientAttempt) -> str:
    return attempt.name


@pytest.mark.parametrize("attempt", [*writer_clients.ATTEMPTS], ids=_name)
def test_a_client_harms_nobody(writers: Writers, attempt: ClientAttempt) -> None:
    with writers.unharmed() as writer, writer.outsider() as outsider:
        outsider.root, outsider.outside = writer.root, writer.outside
        outsider.is_another_served = writer.check_served
        told = set(attempt.run(outsider) or ())
        # While it still has all its connections.
        writer.check_served()
    assert told <= attempt.told, told
