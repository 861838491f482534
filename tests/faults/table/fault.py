# SPDX-License-Identifier: Apache-2.0
"""Row of the table: a named fault, what its client sees, and what becomes of the pool."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from tests.support.pool import LocalPool

if TYPE_CHECKING:
    from tests.faults.table.scene import Scene

OK = frozenset({grpc.StatusCode.OK})
ABORTED = frozenset({grpc.StatusCode.ABORTED})
"""Part of the exchange may have run, so Spark decides whether to retry."""
UNAVAILABLE = frozenset({grpc.StatusCode.UNAVAILABLE})
"""The pool did nothing, or the connection is lost, so another pool can run the exchange."""
CANCELLED = frozenset({grpc.StatusCode.CANCELLED})
DEADLINE = frozenset({grpc.StatusCode.DEADLINE_EXCEEDED})
NO_CALL: frozenset[grpc.StatusCode] = frozenset()
"""Empty: the fault happens while no exchange is open."""


class Pool(enum.Enum):
    """Fate of the pool."""

    WHOLE = "whole"
    """The pool recovers without help."""
    GONE = "gone"
    """Every process ends, and the test starts the pool again as a platform would."""


@dataclass(frozen=True)
class Fault:
    """Row whose `happens` causes the fault and returns the status with which the exchange ended, if one was open."""

    name: str
    happens: Callable[[Scene], grpc.StatusCode | None]
    client: frozenset[grpc.StatusCode]
    pool: Pool = Pool.WHOLE
    options: tuple[str, ...] = ()
    """Additional options of the pool."""
    constants: Mapping[str, object] = field(default_factory=dict)
    """Constants to change in the pool's code, with their values for this row."""
    make: Callable[..., LocalPool] = LocalPool
    """Factory of the pool."""
    place: Callable[[Path], AbstractContextManager[Any]] = nullcontext
    """Context manager for the pool's environment; it receives the parent of the pool's runtime directory."""
    needs: Callable[[], str] = str
    """Function that returns why this machine cannot produce the fault; empty if it can."""
