# SPDX-License-Identifier: Apache-2.0
"""Flight service of a writer: it answers actions and passes exchanges on to `exchanges`."""

import json
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from updraft.errors import FunctionNotFoundError
from updraft.protocol import PROTOCOL_VERSION
from updraft.service.flight_service import Action, Call, FlightService
from updraft.service.identity import Identity
from updraft.service.lifecycle import Lifecycle
from updraft_writer.exchanges import Exchanges
from updraft_writer.gpu.gpu import Gpu, described
from updraft_writer.open_files import OpenFiles
from updraft_writer.quota import Quota
from updraft_writer.reason import Reason
from updraft_writer.request import SERVICE

STATUS_ACTION = "updraft.writer_status"
CHECK_ACTION = "updraft.check_write"

_STATUS_DOC = "Versions, state, quota and open files of this writer, as a JSON object."
_CHECK_DOC = "Check whether this writer would open a file: the body is a WriteCommand; the answer is empty or an error."
_DRAIN_DOC = "Finish open files, open no new ones, then stop: as on SIGTERM."


class WriterService(FlightService):
    """Flight service of a writer."""

    def __init__(
        self,
        exchanges: Exchanges,
        quota: Quota,
        files: OpenFiles,
        lifecycle: Lifecycle,
        gpu: Gpu | Reason,
        *,
        allow_remote_drain: bool,
    ) -> None:
        status = Action(STATUS_ACTION, _STATUS_DOC, self._encoded_status)
        check = Action(CHECK_ACTION, _CHECK_DOC, self._check)
        super().__init__(
            SERVICE,
            [status, check],
            lifecycle,
            exchanges.early_reads,
            drain_doc=_DRAIN_DOC,
            allow_remote_drain=allow_remote_drain,
        )
        self._exchanges = exchanges
        self._quota = quota
        self._files = files
        self._gpu = gpu

    async def do_exchange(self, call: Call) -> None:
        """Serve one exchange."""
        await self._exchanges.serve(call)

    def flight_info(self, descriptor: Any, header: Callable[[str], str]) -> Any:
        """Raise FunctionNotFoundError: a writer serves no flights."""
        raise FunctionNotFoundError("a writer has no functions: exchange with a WriteCommand")

    async def _encoded_status(self, _body: bytes, _identity: Identity) -> bytes:
        return json.dumps(self.status()).encode()

    async def _check(self, body: bytes, identity: Identity) -> bytes:
        await self._exchanges.check(body, identity)
        return b""

    def status(self) -> dict[str, object]:
        """Return the current state of the writer."""
        quota = self._quota
        return {
            "protocol_version": PROTOCOL_VERSION,
            "writer_version": version("updraft-writer"),
            "state": self._lifecycle.phase.value,
            "encoder": described(self._gpu),
            "open_files": len(self._files),
            "quota_bytes": quota.limits.quota_bytes,
            "held_bytes": quota.held_bytes,
            "peak_bytes": quota.peak_bytes,
            "reservations": quota.reservations,
            "batches_waiting": quota.waiting,
        }
