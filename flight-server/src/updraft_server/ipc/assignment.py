# SPDX-License-Identifier: Apache-2.0
"""What the front has decided about an exchange: the metadata of a COMMAND frame, whose body is the client's payload."""

import base64
import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, Self

from google.protobuf.message import DecodeError

from updraft.v1.exchange_pb2 import Limits, TaskIdentity


@dataclasses.dataclass(frozen=True, slots=True)
class Assignment:
    """All that a worker needs to know of a command beside its payload: read, checked and decided by the front."""

    request_id: str
    """Names the exchange in logs."""
    plain: bool = False
    """The client speaks plain Flight: its messages have no app_metadata, and it gets none."""
    databend: bool = False
    """Plain Flight: the client is Databend. Its table functions have one row, and its times are in UTC."""
    tenant: str = ""
    """Whose share of the pool the exchange takes."""
    owner: Sequence[str] = ()
    """Of a session function: tenant, application and session, the only ones that its worker serves from now on."""
    function_name: str = ""
    """Of a registered function; empty for a session function."""
    function_version: str = ""
    """Of a registered function: the very one that runs."""
    stage: int = 0
    """Of a registered aggregate: an AggregateStage."""
    key_columns: int = 0
    """Of a registered aggregate: the number of columns, the first ones, whose values name the group of a row."""
    joined: bool = False
    """Of a registered table function: the client joins each result to the row that it came from."""
    filtered: bool = False
    """Of a registered aggregate: the column behind the keys says which rows are accumulated."""
    restricted: bool = False
    """Run the registered function without network and subprocesses; its worker never has them again."""
    eval_type: int = 0
    """Of a session function: a value of PySpark's PythonEvalType."""
    python_includes: Sequence[str] = ()
    """Names of files that Python imports from."""
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Variables for the time of the exchange."""
    task: TaskIdentity = dataclasses.field(default_factory=TaskIdentity)
    """Whose work it is."""
    limits: Limits = dataclasses.field(default_factory=Limits)
    """What the client asks for; time limits are those below."""
    batch_timeout_seconds: float = 0.0
    """Time that the function may work on one batch; 0 is no limit."""
    idle_timeout_seconds: float = 0.0
    """Time for which the function may neither take a batch nor give one; 0 is no limit."""
    max_batch_bytes: int = 0
    """Body of a batch that comes or goes in parts."""
    max_batch_bytes_setting: str = ""
    """The setting to raise for larger ones, for the error's message."""
    traceparent: str = ""
    """The span to which the function belongs, as the W3C header has it."""
    files_directory: str = ""
    """Where the session's files are; empty when the function has none."""
    artifacts_directory: str = ""
    """Where all artifacts of the owner are, later ones too; empty for an owner of a single exchange without any."""
    broadcasts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Where the pickled values of broadcast variables are, by their ids."""

    @property
    def named_tenant(self) -> str:
        """The tenant that the client or its identity names; empty where the application stands in for one."""
        return "" if self.tenant in self.owner[1:2] else self.tenant

    def encode(self) -> bytes:
        """The app_metadata of the COMMAND frame."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        for name in _MESSAGES:
            values[name] = base64.b64encode(values[name].SerializeToString()).decode()
        return json.dumps(values).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Raises ValueError or TypeError when `data` is not an encoded assignment."""
        values = json.loads(data)
        try:
            for name, message in _MESSAGES.items():
                values[name] = message.FromString(base64.b64decode(values[name]))
            return cls(**values)
        except (DecodeError, KeyError) as error:
            raise ValueError(f"not an assignment: {error}") from None


_MESSAGES: dict[str, type[Any]] = {"task": TaskIdentity, "limits": Limits}
