# SPDX-License-Identifier: Apache-2.0
"""Load: code of an author that has to run before functions can be called, and its time limit."""

import dataclasses
import json

MOST_BYTES = 64 * 1024
"""Largest encoded load. Its reader runs no code of authors, and such code must not make it parse more."""


@dataclasses.dataclass(frozen=True, slots=True)
class Load:
    """Import of a module of functions, or constructor of one of its functions."""

    module: str
    function: str = ""
    """Empty for the import of the module."""
    version: str = ""
    limit_seconds: float = dataclasses.field(default=0.0, compare=False)
    """Time limit; 0 means no limit."""

    def fault(self, reason: str) -> str:
        """Return what is wrong with the module or the function if this load has failed."""
        if self.function:
            return f"function {self.function!r} cannot be loaded: {reason}"
        return f"the module {self.module!r} of --functions cannot be imported: {reason}"

    @property
    def lateness(self) -> str:
        """Reason for the failure if the load has exceeded its time limit."""
        own = "load_timeout_seconds of the function, or " if self.function else ""
        return f"it did not load within {self.limit_seconds:g} seconds ({own}--load-timeout-seconds of the pool)"

    def __str__(self) -> str:
        """Return the load's name in a sentence."""
        return f"function {self.function!r} of the module {self.module!r}" if self.function else f"{self.module!r}"

    def encode(self) -> bytes:
        """Return the load as bytes."""
        return json.dumps(dataclasses.asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> "Load":
        """Return the load in `data`; raises ValueError."""
        if len(data) > MOST_BYTES:
            raise ValueError(f"a load of {len(data)} bytes, the limit is {MOST_BYTES}")
        try:
            fields = json.loads(data)
            module, function, version = (str(fields[name]) for name in ("module", "function", "version"))
            return cls(module, function, version, float(fields["limit_seconds"]))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise ValueError(f"not a load: {error}") from None
