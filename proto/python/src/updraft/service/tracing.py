# SPDX-License-Identifier: Apache-2.0
"""Switches tracing on or off.

Off is the default: every span is then one object that records nothing, and OpenTelemetry is never loaded.
"""

from updraft.service.spans import UNTRACED, Tracer


def start_tracing(endpoint: str, *, service: str) -> Tracer:
    """The tracer of a service named `service`; an empty endpoint switches tracing off."""
    if not endpoint:
        return UNTRACED
    from updraft.service.recorded_spans import RecordingTracer

    return RecordingTracer(endpoint, service=service)
