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
"""Nothing was done here, or the connection is lost, so another pool can take it."""
CANCELLED = frozenset({grpc.StatusCode.CANCELLED})
DEADLINE = frozenset({grpc.StatusCode.DEADLINE_EXCEEDED})
NO_CALL: frozenset[grpc.StatusCode] = frozenset()
"""Empty: the fault happens while no exchange is open."""


class Pool(enum.Enum):
    """Fate of the pool."""

    WHOLE = "whole"
    """It heals by itself."""
    GONE = "gone"
    """Every process ends; it is started again as a platform would."""


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
    """Constants in the pool's code, with the row's values."""
    make: Callable[..., LocalPool] = LocalPool
    """Factory of the pool."""
    place: Callable[[Path], AbstractContextManager[Any]] = nullcontext
    """Environment of the pool, made around the directory that will hold its runtime directory."""
    needs: Callable[[], str] = str
    """Function that returns why this machine cannot have the fault; empty if it can."""
