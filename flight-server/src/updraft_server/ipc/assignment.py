# SPDX-License-Identifier: Apache-2.0
"""Assignment: the front's decisions about an exchange.

An assignment is the metadata of a COMMAND frame. The body of that frame is the client's payload.
"""

import base64
import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, Self

from google.protobuf.message import DecodeError

from updraft.v1.exchange_pb2 import Limits, TaskIdentity


@dataclasses.dataclass(frozen=True, slots=True)
class Assignment:
    """Everything that a worker needs to know about a command, except the payload. The front has checked the values."""

    plain: bool = False
    """Whether the client uses plain Flight: no message in either direction contains app_metadata."""
    databend: bool = False
    """Whether the plain Flight client is Databend. It calls a table function with one row, and its times are in UTC."""
    tenant: str = ""
    """Tenant used for fair scheduling."""
    owner: Sequence[str] = ()
    """Tenant, application and session of a session function. From now on, the worker serves only this owner."""
    function_name: str = ""
    """Name of a registered function; empty for a session function."""
    function_version: str = ""
    """Version of the registered function that runs."""
    stage: int = 0
    """Stage of a registered aggregate: an AggregateStage."""
    key_columns: int = 0
    """Number of leading columns whose values name the group of a row, for a registered aggregate."""
    joined: bool = False
    """Whether the client of a registered table function joins each result row to the row that produced it."""
    filtered: bool = False
    """Whether the column after the keys marks the rows that a registered aggregate accumulates."""
    restricted: bool = False
    """Whether the registered function runs without network and subprocesses. The worker then loses both for good."""
    eval_type: int = 0
    """Eval type of a session function: a value of PySpark's PythonEvalType."""
    python_includes: Sequence[str] = ()
    """Names of files that Python imports from."""
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Environment variables for the time of the exchange."""
    task: TaskIdentity = dataclasses.field(default_factory=TaskIdentity)
    """Task that the exchange serves."""
    limits: Limits = dataclasses.field(default_factory=Limits)
    """Limits that the client requests. `batch_timeout_seconds` and `idle_timeout_seconds` replace its time limits."""
    batch_timeout_seconds: float = 0.0
    """Time that the function may work on one batch; 0 means no limit."""
    idle_timeout_seconds: float = 0.0
    """Time that may pass without the function taking or returning a batch; 0 means no limit."""
    max_batch_bytes: int = 0
    """Largest body of a batch that the client or the worker sends in parts."""
    max_batch_bytes_setting: str = ""
    """Setting to raise for larger batches; the error message names it."""
    traceparent: str = ""
    """Span to which the function belongs, in the form of the W3C traceparent header."""
    files_directory: str = ""
    """Directory of the session's files; empty if the function has none."""
    artifacts_directory: str = ""
    """Directory of all artifacts of the owner, including later artifacts; empty if the owner exists for one exchange
    that has no artifacts."""
    broadcasts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Paths of the pickled values of broadcast variables, by id."""

    @property
    def named_tenant(self) -> str:
        """Tenant that the client or its identity names; empty if the application is the default tenant."""
        return "" if self.tenant in self.owner[1:2] else self.tenant

    def encode(self) -> bytes:
        """Return the app_metadata of the COMMAND frame."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        for name in _MESSAGES:
            values[name] = base64.b64encode(values[name].SerializeToString()).decode()
        return json.dumps(values).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return the assignment in `data`; raises ValueError or TypeError if `data` is malformed."""
        values = json.loads(data)
        try:
            for name, message in _MESSAGES.items():
                values[name] = message.FromString(base64.b64decode(values[name], validate=True))
            return cls(**values)
        except (DecodeError, KeyError) as error:
            raise ValueError(f"not an assignment: {error}") from None


_MESSAGES: dict[str, type[Any]] = {"task": TaskIdentity, "limits": Limits}
