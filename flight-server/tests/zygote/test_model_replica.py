# SPDX-License-Identifier: Apache-2.0
"""Counts that a zygote keeps about a model process."""

import math
import socket
from collections.abc import Iterator

import pytest

from updraft_server.ipc.batch_record import BatchRecord
from updraft_server.worker.model.control import MAX_PACKET_BYTES, State
from updraft_server.worker.model.watchdog import Watchdog
from updraft_server.zygote.model_replica import ForkedModel, Replica, ReplicaState


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Return the zygote's and the process's ends of their control socket."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def replica(ends: tuple[socket.socket, socket.socket]) -> Replica:
    """Return a replica that is loading its function."""
    return Replica("model-1", 0, ForkedModel(0, -1, ends[0], Watchdog()), math.inf)


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


def test_a_process_that_reads_nothing_is_not_waited_for_and_retires_once_it_can_be_told(
    replica: Replica, ends: tuple[socket.socket, socket.socket]
) -> None:
    replica.state = ReplicaState.READY
    while replica.attach(ends[0]):
        continue
    assert (replica.retire(), replica.state) == (False, ReplicaState.READY)
    ends[1].recv(MAX_PACKET_BYTES)
    assert (replica.retire(), replica.state) == (True, ReplicaState.RETIRING)
