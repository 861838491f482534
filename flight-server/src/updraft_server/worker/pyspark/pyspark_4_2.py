# SPDX-License-Identifier: Apache-2.0
"""Adapter to the worker of PySpark 4.2: calls `main`, with the init message in front of the data."""

from typing import Any

import pyspark.worker

from updraft_server.worker.pyspark.init_message import compose
from updraft_server.worker.pyspark.trailer import TIMINGS

__all__ = ["TIMINGS", "compose", "invoke"]


def invoke(init_message: bytes, stream: Any) -> None:
    """Run PySpark's worker over a session stream; it raises SystemExit after it has reported an exception."""
    stream.preface(init_message)
    pyspark.worker.main(stream, stream)
