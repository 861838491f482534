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
    """Span that is not recorded. As a context manager it ends with its block, and an exception marks it as failed."""

    @property
    def traceparent(self) -> str:
        """Value of the W3C header `traceparent` for this span; empty for a span that is not recorded."""
        return ""

    def child(self, name: str, attributes: Attributes = NO_ATTRIBUTES) -> "Span":
        """Start a child span."""
        return self

    def took(self, name: str, seconds: float) -> None:
        """Add a child span that ends now and began `seconds` ago."""

    def describe(self, attributes: Attributes) -> None:
        """Add attributes."""

    def fail(self, error: BaseException) -> None:
        """Mark the span as failed; a later cancellation does not change that."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return None


class Tracer:
    """Factory of a service's spans; this base class creates spans that are not recorded."""

    def exchange(self, name: str, traceparent: str) -> Span:
        """Start the span of an exchange, as a child of the client's span if `traceparent` names one."""
        return UNRECORDED

    def close(self) -> None:
        """Export the remaining spans, for a bounded time."""


UNRECORDED = Span()
UNTRACED = Tracer()
