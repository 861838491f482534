# SPDX-License-Identifier: Apache-2.0
"""What a zygote counts of a model process."""

import math
import socket
from collections.abc import Iterator

import pytest

from updraft_server.ipc.batch_record import BatchRecord
from updraft_server.worker.model.control import State
from updraft_server.worker.model.watchdog import Watchdog
from updraft_server.zygote.model_replica import ForkedModel, Replica, ReplicaState


@pytest.fixture
def replica() -> Iterator[Replica]:
    """One that loads its function."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield Replica("model-1", 0, ForkedModel(0, -1, ours, Watchdog()), math.inf)


def connected(replica: Replica, connections: int) -> None:
    replica.told = State(0, connections, 0.0, BatchRecord().to_plain())


def test_cpu_time_of_loading_is_no_batchs(replica: Replica) -> None:
    assert [replica.batch_processor_seconds(seconds) for seconds in (1.0, 90.0)] == [0.0, 0.0]
    replica.state = ReplicaState.READY
    connected(replica, 1)
    assert [replica.batch_processor_seconds(seconds) for seconds in (100.0, 103.0)] == [0.0, 3.0]


def test_cpu_time_of_a_process_that_nobody_calls_is_no_batchs(replica: Replica) -> None:
    replica.state = ReplicaState.READY
    connected(replica, 1)
    assert [replica.batch_processor_seconds(seconds) for seconds in (1.0, 3.0)] == [0.0, 2.0]
    connected(replica, 0)
    assert [replica.batch_processor_seconds(seconds) for seconds in (50.0, 90.0)] == [0.0, 0.0]
    connected(replica, 1)
    assert [replica.batch_processor_seconds(seconds) for seconds in (91.0, 95.0)] == [0.0, 4.0]
