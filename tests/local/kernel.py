# SPDX-License-Identifier: Apache-2.0
"""Jupyter kernel, driven as a notebook drives it."""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_client.manager import start_new_kernel

_TIMEOUT_SECONDS = 180


@dataclass
class Output:
    """Outputs of a cell."""

    text: str = ""
    """Its standard output and error."""
    shown: list[dict[str, Any]] = field(default_factory=list)
    """Its results and displays, by MIME type."""
    error: str = ""
    """Class of its exception."""
    seconds: float = 0.0


class Kernel:
    """Running kernel; cells run one after the other."""

    def __init__(self, manager: Any, client: Any) -> None:
        self._manager = manager
        self._client = client

    def run(self, code: str) -> Output:
        """Run a cell and return its output."""
        return self.finished(self.start(code))

    def start(self, code: str) -> str:
        """Start to run a cell."""
        return str(self._client.execute(code))

    def interrupt(self) -> None:
        """Press the stop button."""
        self._manager.interrupt_kernel()

    def finished(self, cell: str) -> Output:
        """Wait for a cell to end, and return its output."""
        output, began = Output(), time.monotonic()
        while time.monotonic() - began < _TIMEOUT_SECONDS:
            try:
                message = self._client.get_iopub_msg(timeout=_TIMEOUT_SECONDS)
            except queue.Empty:
                break
            if message["parent_header"].get("msg_id") != cell:
                continue
            content = message["content"]
            match message["msg_type"]:
                case "stream":
                    output.text += content["text"]
                case "execute_result" | "display_data" | "update_display_data":
                    output.shown.append(content["data"])
                case "error":
                    output.error = content["ename"]
                    output.text += "\n".join(content["traceback"])
                case "status" if content["execution_state"] == "idle":
                    output.seconds = time.monotonic() - began
                    return output
        raise TimeoutError(f"the cell did not end within {_TIMEOUT_SECONDS} seconds; it has shown:\n{output.text}")


@contextmanager
def running_kernel(directory: Path) -> Iterator[Kernel]:
    """Run a kernel of this Python in a directory; its processes end with the block."""
    manager, client = start_new_kernel(
        kernel_name="python3", cwd=str(directory), env=dict(os.environ), startup_timeout=_TIMEOUT_SECONDS
    )
    try:
        yield Kernel(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=False)
