# SPDX-License-Identifier: Apache-2.0
"""The guide to logs shows the fields of a function's log lines."""

from __future__ import annotations

import json
import re

from tests.support.paths import REPOSITORY
from updraft.service.exchange import task_context
from updraft.v1.exchange_pb2 import Owner, TaskIdentity

_OF_EVERY_LINE = {"event", "level", "timestamp", "process"}
_OF_OUTPUT = {"worker", "line", "function"}


def test_a_line_of_a_function_has_the_fields_that_the_guide_shows() -> None:
    text = (REPOSITORY / "docs/guides/logs.md").read_text()
    (shown,) = re.findall(r"^```json\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    task = task_context(TaskIdentity(owner=Owner(application_id="app")))
    assert set(json.loads(shown)) == _OF_EVERY_LINE | _OF_OUTPUT | set(task)
