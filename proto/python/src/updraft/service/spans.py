# SPDX-License-Identifier: Apache-2.0
"""Spans: where the time of an exchange went, for an OpenTelemetry collector.

The classes here record nothing; `updraft.service.recorded_spans` has those that record, and `updraft.service.tracing`
chooses between them. An attribute name without a dot is ours.
"""

from collections.abc import Mapping
from types import TracebackType
from typing import Self

TRACE_HEADER = "traceparent"

Attributes = Mapping[str, str | int | float]

NO_ATTRIBUTES: Attributes = {}


class Span:
    """A span that nobody records. A context manager: it ends with its block, and fails with what leaves the block."""

    @property
    def traceparent(self) -> str:
        """This span for the W3C header of that name, empty when nobody records it."""
        return ""

    def child(self, name: str, attributes: Attributes = NO_ATTRIBUTES) -> "Span":
        """A part of this one, which begins now."""
        return self

    def took(self, name: str, seconds: float) -> None:
        """Add a part that ends now and took so long."""

    def describe(self, attributes: Attributes) -> None:
        """Add attributes."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return None


class Tracer:
    """Begins the spans of a service; this one begins none."""

    def exchange(self, name: str, traceparent: str) -> Span:
        """The span of an exchange, below the client's span when its header names one."""
        return UNRECORDED

    def close(self) -> None:
        """Export what waits, for a bounded time."""


UNRECORDED = Span()
UNTRACED = Tracer()
