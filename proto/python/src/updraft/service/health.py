# SPDX-License-Identifier: Apache-2.0
"""grpc.health.v1: one board of states, served by every listener of a service."""

from collections.abc import Iterable, Mapping

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

HEALTH_METHOD_PREFIX = "/grpc.health.v1.Health/"

# The empty name stands for the whole service.
WHOLE_SERVICE = ""

# Serving as long as the process answers: a process that is not ready (draining, healing) must not be restarted.
LIVE = "updraft.live"


class HealthBoard:
    """The state of each name, as probes see it."""

    def __init__(self) -> None:
        self._servicer = health.aio.HealthServicer()
        self._published: dict[str, bool] = {}

    @property
    def published(self) -> Mapping[str, bool]:
        """Whether each name serves, as probes see it."""
        return self._published

    def add_to(self, server: "grpc.aio.Server") -> None:
        """Serve the board on `server`."""
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)

    async def publish(self, names: Iterable[str], *, serving: bool) -> None:
        """Set SERVING or NOT_SERVING for each of `names`, and notify watchers."""
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in names:
            if self._published.get(name) is not serving:
                self._published[name] = serving
                await self._servicer.set(name, status)
