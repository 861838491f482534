# SPDX-License-Identifier: Apache-2.0
"""Callers that continuously echo random batches through a pool, and the results of these calls."""

from __future__ import annotations

import random
import threading
from types import TracebackType
from typing import Self

import grpc
import pyarrow as pa

from tests.support.flight import echo_command, exchange, whole_request
from tests.support.waiting import HANG_SECONDS, until

_RETRY_SECONDS = 0.05


class Traffic:
    """Callers that send batches until the end of the block; a context manager."""

    def __init__(self, address: str, *, callers: int) -> None:
        self.right = 0
        self.failed: list[tuple[grpc.StatusCode, str]] = []
        self.wrong: list[str] = []
        self._done = threading.Event()
        self._callers = [
            threading.Thread(target=self._call_until_done, args=(address, seed), daemon=True) for seed in range(callers)
        ]

    def wait_for_progress(self) -> None:
        """Wait until a few more exchanges have succeeded."""
        seen = self.right
        until("the callers make progress", lambda: self.right > seen + 2)

    def _call_until_done(self, address: str, seed: int) -> None:
        """Send random batches and compare the echoes."""
        chance = random.Random(seed)
        while not self._done.is_set():
            rows = [[chance.random() for _ in range(chance.randrange(2000))] for _ in range(chance.randrange(1, 8))]
            batches = [pa.RecordBatch.from_pydict({"_0": pa.array(values, pa.float64())}) for values in rows]
            reply = exchange(address, whole_request(echo_command(), batches[0].schema, batches))
            if reply.code != grpc.StatusCode.OK:
                self.failed.append((reply.code, reply.details))
                self._done.wait(_RETRY_SECONDS)
                continue
            if reply.batches() != batches:
                self.wrong.append(f"{[b.num_rows for b in reply.batches()]} for {[b.num_rows for b in batches]}")
            self.right += 1

    def __enter__(self) -> Self:
        for caller in self._callers:
            caller.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        for caller in self._callers:
            caller.join(HANG_SECONDS)
            assert not caller.is_alive(), "a call hangs"
