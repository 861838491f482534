# SPDX-License-Identifier: Apache-2.0
"""Custom resource definitions of an operator, installed for the length of a test."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml
from kubernetes import client

from tests.support.waiting import until

_KNOWN_SECONDS = _GONE_SECONDS = 60


@contextmanager
def defined(files: Sequence[Path]) -> Iterator[None]:
    """Install the definitions in these files; delete them and all their objects at the end of the block."""
    definitions = [yaml.load(file.read_text(), yaml.CSafeLoader) for file in files]
    names = {definition["metadata"]["name"] for definition in definitions}
    extensions = client.ApiextensionsV1Api()
    for definition in definitions:
        extensions.create_custom_resource_definition(definition, _preload_content=False)
    try:
        until("the kinds are known", lambda: names <= _established(), timeout_seconds=_KNOWN_SECONDS)
        yield
    finally:
        for name in names:
            extensions.delete_custom_resource_definition(name)
        until("the kinds are gone", lambda: not names & _listed().keys(), timeout_seconds=_GONE_SECONDS)


def _established() -> set[str]:
    return {name for name, held in _listed().items() if "Established" in held}


def _listed() -> dict[str, set[str]]:
    """Return the conditions of each definition, from raw JSON: the client's schema models would take seconds."""
    answer = client.ApiextensionsV1Api().list_custom_resource_definition(_preload_content=False)
    return {each["metadata"]["name"]: _conditions(each.get("status", {})) for each in json.loads(answer.data)["items"]}


def _conditions(status: dict[str, list[dict[str, str]] | None]) -> set[str]:
    return {condition["type"] for condition in status.get("conditions") or () if condition["status"] == "True"}
