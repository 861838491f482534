# SPDX-License-Identifier: Apache-2.0
"""Definitions of custom resources, as `.ci/crds.py` wrote them from their operators' releases."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema

from tests.chart.chart import Manifest

_SCHEMAS = Path(__file__).with_name("crds")


class UnknownResourceError(Exception):
    """Resource without a definition."""


def validate(manifest: Manifest) -> None:
    """Raise jsonschema.ValidationError for what an operator's API would refuse or silently drop."""
    group_version, kind = manifest["apiVersion"].replace("/", "_"), manifest["kind"]
    path = _SCHEMAS / f"{group_version}_{kind}.json"
    if not path.exists():
        raise UnknownResourceError(f"{path.name} is missing: name its operator's release in .ci/crds.py")
    jsonschema.validate(manifest, json.loads(path.read_text()), cls=jsonschema.Draft202012Validator)
