# SPDX-License-Identifier: Apache-2.0
"""PySpark versions that a pool can run, and the adapter of each.

An adapter is a module `pyspark_X_Y`; `kinds` holds the differences by version and kind of function.
"""

import importlib
from typing import Any, Protocol, cast

from updraft.v1 import exchange_pb2
from updraft_server.ipc.assignment import Assignment
from updraft_server.worker.pyspark.init_message import Surroundings

SUPPORTED = ((4, 0), (4, 1), (4, 2), (4, 3))


class Adapter(Protocol):
    """Adapter to the worker code of one PySpark version."""

    @property
    def TIMINGS(self) -> tuple[str, ...]:  # noqa: N802
        """Times that the worker reports, as fields of `Trailer`."""

    def compose(self, assignment: Assignment, payload: exchange_pb2.SessionPayload, around: Surroundings) -> bytes:
        """Return the bytes that the worker reads before its data."""

    def invoke(self, init_message: bytes, stream: Any) -> None:
        """Run the worker over a session stream; it raises SystemExit after it has reported an exception."""


def minor_version(version: str) -> tuple[int, int]:
    """Return major and minor version of a text like "4.1.3"; raises ValueError."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def load_adapter(pyspark_version: str) -> Adapter:
    """Return the adapter of an installed PySpark; raises ImportError for an unsupported version."""
    version = minor_version(pyspark_version)
    if version not in SUPPORTED:
        known = ", ".join(f"{major}.{minor}" for major, minor in SUPPORTED)
        raise ImportError(f"pyspark {pyspark_version} is not supported: use one of {known}")
    module = importlib.import_module(f"updraft_server.worker.pyspark.pyspark_{version[0]}_{version[1]}")
    return cast("Adapter", module)
