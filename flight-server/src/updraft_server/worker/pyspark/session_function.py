# SPDX-License-Identifier: Apache-2.0
"""A session function as its worker sees it: the front's part and the payload, which is opened here only."""

from collections.abc import Sequence
from typing import NamedTuple

from updraft.v1.exchange_pb2 import SessionPayload


class SessionFunction(NamedTuple):
    """What PySpark's worker is told to run."""

    eval_type: int
    """A value of PySpark's PythonEvalType."""
    python_includes: Sequence[str]
    """Names of files that Python imports from."""
    payload: SessionPayload
    """The functions, their settings and schemas."""
