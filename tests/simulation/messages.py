# SPDX-License-Identifier: Apache-2.0
"""Messages of simulated calls: the contract's messages (proto/updraft/v1), reduced to what the policy reads."""

from __future__ import annotations

from typing import NamedTuple

from tests.simulation.client.recovery import Failure
from tests.simulation.client.request_log import Batch
from updraft_server.pool.bindings import Binding
from updraft_server.pool.leases import TaskKey


class Open(NamedTuple):
    """Command that opens an exchange."""

    tenant: str
    task: TaskKey
    binding: Binding
    held_bytes: int
    artifact_seconds: float
    """Time for uploading the function's artifacts; 0 without artifacts."""
    token: str
    refuse_if_busy: bool = False


class Sent(NamedTuple):
    """Batch from the client. Batches are numbered from 1 in each call."""

    sequence: int
    batch: Batch
    work: Work


class Work(NamedTuple):
    """Effect of a batch on its worker."""

    seconds: float
    kills: bool = False
    hangs: bool = False


class Finish(NamedTuple):
    """Totals of a side that has sent all its messages."""

    batches: int
    rows: int


class Admitted(NamedTuple):
    """Message that the exchange has received a worker."""


class Schema(NamedTuple):
    """Schema of the results."""


class Credit(NamedTuple):
    """Progress of the function, without a result."""

    consumed: int


class Answer(NamedTuple):
    """Result of one batch."""

    sequence: int
    rows: int
    consumed: int
    content: object


class Refused(NamedTuple):
    """Failure, in-band or as a status, with the retry hint in milliseconds."""

    failure: Failure
    hint: int | None = None
