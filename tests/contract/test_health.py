# SPDX-License-Identifier: Apache-2.0
"""Health service grpc.health.v1 on the Flight port and on the admin port."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.support.pool import LocalPool
from tests.support.waiting import HANG_SECONDS

Health = Any
SERVICES = ["", "arrow.flight.protocol.FlightService", "updraft.function/echo"]


@pytest.fixture(params=["flight", "admin"])
def health(request: pytest.FixtureRequest, pool: LocalPool) -> Iterator[Health]:
    address = pool.tcp_address if request.param == "flight" else pool.admin_address
    with grpc.insecure_channel(address) as channel:
        yield health_pb2_grpc.HealthStub(channel)


@pytest.mark.parametrize("service", SERVICES)
def test_a_ready_pool_serves(health: Health, service: str) -> None:
    answer = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=HANG_SECONDS)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_an_unknown_service_is_not_found(health: Health) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        health.Check(health_pb2.HealthCheckRequest(service="updraft.function/none"), timeout=HANG_SECONDS)
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND


def test_a_watcher_hears_the_state_at_once(health: Health) -> None:
    watch = health.Watch(health_pb2.HealthCheckRequest(service=""), timeout=HANG_SECONDS)
    assert next(iter(watch)).status == health_pb2.HealthCheckResponse.SERVING
    watch.cancel()
