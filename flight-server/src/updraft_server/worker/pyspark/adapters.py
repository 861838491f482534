# SPDX-License-Identifier: Apache-2.0
"""Which PySpark versions a pool runs, and what each of them needs to be told in its own way.

An adapter is a module `pyspark_X_Y`; `kinds` has what differs by version and kind of function.
"""

import importlib
from typing import Any, Protocol, cast

from updraft.v1 import exchange_pb2
from updraft_server.ipc.assignment import Assignment
from updraft_server.worker.pyspark.init_message import Surroundings

SUPPORTED = ((4, 0), (4, 1), (4, 2), (4, 3))


class Adapter(Protocol):
    """How the worker code of one PySpark version is run."""

    @property
    def TIMINGS(self) -> tuple[str, ...]:  # noqa: N802
        """The times that it reports, as fields of `Trailer`."""

    def compose(self, assignment: Assignment, payload: exchange_pb2.SessionPayload, around: Surroundings) -> bytes:
        """What it reads before its data."""

    def invoke(self, init_message: bytes, stream: Any) -> None:
        """Run it over a session stream; it ends with SystemExit after it has reported an exception."""


def minor_version(version: str) -> tuple[int, int]:
    """Major and minor of "4.1.3"; raises ValueError."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def load_adapter(pyspark_version: str) -> Adapter:
    """The adapter of an installed PySpark; raises ImportError where there is none."""
    version = minor_version(pyspark_version)
    if version not in SUPPORTED:
        known = ", ".join(f"{major}.{minor}" for major, minor in SUPPORTED)
        raise ImportError(f"pyspark {pyspark_version} is not supported: use one of {known}")
    module = importlib.import_module(f"updraft_server.worker.pyspark.pyspark_{version[0]}_{version[1]}")
    return cast("Adapter", module)
