# SPDX-License-Identifier: Apache-2.0
"""What the front tells a worker about an exchange beside the client's own command: the metadata of a COMMAND frame."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Self


@dataclasses.dataclass(frozen=True, slots=True)
class Assignment:
    """The front's half of a COMMAND frame.

    With `function_name` the exchange is plain Flight (descriptor PATH): the frame's body is empty and no message of the
    exchange has app_metadata. Without it the body is the client's `ExchangeCommand`, unchanged.
    """

    request_id: str
    """Names the exchange in logs."""
    tenant: str = ""
    function_name: str = ""
    function_version: str = ""
    batch_timeout_seconds: float = 0.0
    """Time that the function may work on one batch; 0 is no limit."""
    idle_timeout_seconds: float = 0.0
    """Time for which the function may neither take a batch nor give one; 0 is no limit."""
    traceparent: str = ""
    files_directory: str = ""
    """Where the session's files are; empty when the function has none."""
    broadcasts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Where the pickled values of broadcast variables are, by their ids."""

    @property
    def plain(self) -> bool:
        """True when the client speaks plain Flight."""
        return bool(self.function_name)

    def encode(self) -> bytes:
        """The app_metadata of the COMMAND frame."""
        return json.dumps(dataclasses.asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Raises ValueError or TypeError when `data` is not an encoded assignment."""
        return cls(**json.loads(data))
