# SPDX-License-Identifier: Apache-2.0
"""Writer with two receivers, on any number of cores."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from running_writer import RunningWriter, running_writer

from updraft.client.writer import WriterClient
from updraft_writer.receivers.receivers import Receivers

RECEIVERS = 2
WITH_RECEIVERS = {
    "receivers.LEAST_CORES": 1,
    "receivers.LEAST_RECEIVERS": RECEIVERS,
    "receivers.MOST_RECEIVERS": RECEIVERS,
}
"""Constants below `updraft_writer` for a writer with receivers on any number of cores."""


@contextmanager
def writer_with_receivers(root: Path, **changes: Any) -> Iterator[RunningWriter]:
    with running_writer(root, constants=WITH_RECEIVERS, **changes) as writer:
        yield writer


def receivers_of(writer: RunningWriter) -> Receivers:
    assert writer.writer.receivers is not None
    return writer.writer.receivers


def own_connection(address: str) -> WriterClient:
    client = WriterClient(address)
    client._channel.close()
    options = [("grpc.use_local_subchannel_pool", 1)]
    client._channel = grpc.insecure_channel(address, options=options)
    return client


def is_over(receivers: Receivers, killed: int) -> bool:
    return killed not in receivers.open_calls and len(receivers.open_calls) == RECEIVERS


def health(writer: RunningWriter) -> int:
    with grpc.insecure_channel(writer.address) as channel:
        answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    return int(answer.status)
