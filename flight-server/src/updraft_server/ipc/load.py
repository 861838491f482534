# SPDX-License-Identifier: Apache-2.0
"""Code of an author that has to run before functions can be called, and how long it may take."""

import dataclasses
import json

MOST_BYTES = 64 * 1024
"""Of one that travels. Whoever reads it runs no code of authors, and may not be made to parse more."""


@dataclasses.dataclass(frozen=True, slots=True)
class Load:
    """The import of a module of functions, or the constructor of one of its functions."""

    module: str
    function: str = ""
    """Empty while the module is imported."""
    version: str = ""
    limit_seconds: float = dataclasses.field(default=0.0, compare=False)
    """How long it may take; 0 is no limit."""

    def fault(self, reason: str) -> str:
        """What is wrong with the module or the function when this has failed."""
        if self.function:
            return f"function {self.function!r} cannot be loaded: {reason}"
        return f"the module {self.module!r} of --functions cannot be imported: {reason}"

    @property
    def lateness(self) -> str:
        """The reason when it has taken longer than it may."""
        own = "load_timeout_seconds of the function, or " if self.function else ""
        return f"it did not load within {self.limit_seconds:g} seconds ({own}--load-timeout-seconds of the pool)"

    def __str__(self) -> str:
        """In a sentence."""
        return f"function {self.function!r} of the module {self.module!r}" if self.function else f"{self.module!r}"

    def encode(self) -> bytes:
        """As it travels."""
        return json.dumps(dataclasses.asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> "Load":
        """The inverse of `encode`; raises ValueError."""
        if len(data) > MOST_BYTES:
            raise ValueError(f"a load of {len(data)} bytes, the limit is {MOST_BYTES}")
        try:
            fields = json.loads(data)
            module, function, version = (str(fields[name]) for name in ("module", "function", "version"))
            return cls(module, function, version, float(fields["limit_seconds"]))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise ValueError(f"not a load: {error}") from None
