# SPDX-License-Identifier: Apache-2.0
"""PySpark versions that a pool can run, and an adapter to the worker code of each version.

The module `kinds` has the differences by version and kind of function.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import pyspark.worker

from updraft.v1 import exchange_pb2
from updraft_server.ipc.assignment import Assignment
from updraft_server.worker.pyspark.init_message import Surroundings, compose
from updraft_server.worker.pyspark.init_message_before_4_2 import compose_3_5, compose_4_0, compose_4_1
from updraft_server.worker.pyspark.trailer import TIMINGS, TIMINGS_BEFORE_4_2

_INIT_MESSAGES: dict[tuple[int, int], Callable[[Assignment, exchange_pb2.SessionPayload, Surroundings], bytes]] = {
    (3, 5): compose_3_5,
    (4, 0): compose_4_0,
    (4, 1): compose_4_1,
    (4, 2): compose,
    (4, 3): compose,
}
SUPPORTED = tuple(_INIT_MESSAGES)


class Adapter(NamedTuple):
    """Adapter to the worker code of one PySpark version."""

    timings: tuple[str, ...]
    """Times that the worker reports, as fields of `Trailer`."""
    compose: Callable[[Assignment, exchange_pb2.SessionPayload, Surroundings], bytes]
    """Returns the bytes that the worker reads before its data."""
    invoke: Callable[[bytes, Any], None]
    """Runs the worker over a session stream. The worker raises SystemExit after it has reported an exception."""


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
    if version < (4, 3):
        invoke = _call_main
    else:
        from updraft_server.worker.pyspark.message_receiver import invoke
    return Adapter(TIMINGS_BEFORE_4_2 if version < (4, 2) else TIMINGS, _INIT_MESSAGES[version], invoke)


def _call_main(init_message: bytes, stream: Any) -> None:
    """Call the `main` of PySpark before 4.3, which reads the init message in front of the data."""
    stream.preface(init_message)
    pyspark.worker.main(stream, stream)
