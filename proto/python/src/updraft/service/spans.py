# SPDX-License-Identifier: Apache-2.0
"""Spans, which show in an OpenTelemetry collector how an exchange spent its time.

The classes here record nothing. Their subclasses in `updraft.service.recorded_spans` record, and
`updraft.service.tracing` chooses between the two. Attribute names without a dot get the prefix `updraft.`.
"""

from collections.abc import Mapping
from types import TracebackType
from typing import Self

TRACE_HEADER = "traceparent"

Attributes = Mapping[str, str | int | float]

NO_ATTRIBUTES: Attributes = {}


class Span:
    """A span that is not recorded. As a context manager it ends with its block, and an exception marks it as failed."""

    @property
    def traceparent(self) -> str:
        """This span as the value of the W3C header of that name; empty for a span that is not recorded."""
        return ""

    def child(self, name: str, attributes: Attributes = NO_ATTRIBUTES) -> "Span":
        """A child span that begins now."""
        return self

    def took(self, name: str, seconds: float) -> None:
        """Add a child span that ends now and took so many seconds."""

    def describe(self, attributes: Attributes) -> None:
        """Add attributes."""

    def fail(self, error: BaseException) -> None:
        """Mark it as failed; a cancellation that comes before its end does not change that."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return None


class Tracer:
    """Makes the spans of a service; this one makes spans that are not recorded."""

    def exchange(self, name: str, traceparent: str) -> Span:
        """The span of an exchange; a child of the client's span if `traceparent` has one."""
        return UNRECORDED

    def close(self) -> None:
        """Export the spans that have not been exported yet, for a bounded time."""


UNRECORDED = Span()
UNTRACED = Tracer()
