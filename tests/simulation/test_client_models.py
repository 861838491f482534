# SPDX-License-Identifier: Apache-2.0
"""The models of the client decide as in the traces. PolicyTracesTest checks the Java classes with the same traces."""

from __future__ import annotations

from tests.simulation.client.traces import TARGET, written


def test_the_models_decide_as_in_the_traces_that_the_java_classes_repeat() -> None:
    assert TARGET.read_text() == written(), "run .venv/bin/python -m tests.simulation.client.traces"
