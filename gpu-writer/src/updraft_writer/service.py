# SPDX-License-Identifier: Apache-2.0
"""The Flight service of a writer: its actions; exchanges go to `exchanges`."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from updraft.errors import FunctionNotFoundError, ProtocolError
from updraft.protocol import PROTOCOL_VERSION
from updraft.service.flight_service import DRAIN_ACTION, Call, FlightService, remote_drain_refused
from updraft.service.lifecycle import Event, Lifecycle
from updraft_writer.exchanges import Exchanges
from updraft_writer.gpu.gpu import Gpu, described
from updraft_writer.open_files import OpenFiles
from updraft_writer.quota import Quota
from updraft_writer.reason import Reason

STATUS_ACTION = "updraft.writer_status"
CHECK_ACTION = "updraft.check_write"

_ALWAYS = (
    (STATUS_ACTION, "Versions, state, quota and open files of this writer, as a JSON object."),
    (
        CHECK_ACTION,
        "Whether this writer would open a file: the body is a WriteCommand; the answer is empty or an error.",
    ),
)
_DRAIN = (DRAIN_ACTION, "Finish open files, open no new ones, then stop: as on SIGTERM.")


@dataclass(frozen=True, kw_only=True)
class WriterService(FlightService):
    """Flight, as a writer answers it."""

    exchanges: Exchanges
    quota: Quota
    files: OpenFiles
    lifecycle: Lifecycle
    gpu: Gpu | Reason
    allow_remote_drain: bool

    async def do_exchange(self, call: Call) -> None:
        """Serve one exchange."""
        await self.exchanges.serve(call)

    def list_flights(self) -> Iterable[Any]:
        """Empty: a writer serves no flights."""
        return []

    def flight_info(self, descriptor: Any) -> Any:
        """Raises FunctionNotFoundError: a writer serves no flights."""
        raise FunctionNotFoundError("a writer has no functions: exchange with a WriteCommand")

    def list_actions(self) -> Iterable[tuple[str, str]]:
        """Name and description of every action that is allowed."""
        return (*_ALWAYS, _DRAIN) if self.allow_remote_drain else _ALWAYS

    async def do_action(self, name: str, body: bytes) -> bytes:
        """Run an action; raises ProtocolError for one that does not exist, ActionRefusedError for a refused one.

        CHECK_ACTION raises what it finds.
        """
        if name == STATUS_ACTION:
            return json.dumps(self.status()).encode()
        if name == CHECK_ACTION:
            await self.exchanges.check(body)
            return b""
        if name == DRAIN_ACTION:
            if not self.allow_remote_drain:
                raise remote_drain_refused()
            self.lifecycle.handle(Event.DRAIN_REQUESTED)
            return b""
        known = ", ".join(action for action, _ in self.list_actions())
        raise ProtocolError(f"no action {name!r}: this writer has {known}")

    def status(self) -> dict[str, object]:
        """The writer's state now."""
        quota = self.quota
        return {
            "protocol_version": PROTOCOL_VERSION,
            "writer_version": version("updraft-writer"),
            "state": self.lifecycle.phase.value,
            "encoder": described(self.gpu),
            "open_files": len(self.files),
            "quota_bytes": quota.limits.quota_bytes,
            "held_bytes": quota.held_bytes,
            "peak_bytes": quota.peak_bytes,
            "reservations": quota.reservations,
            "batches_waiting": quota.waiting,
        }
