# SPDX-License-Identifier: Apache-2.0
"""Handover of the settings, which the supervisor has checked, to the front.

A front that replaces a killed front must start quickly. Loading the library that checks settings would take a third of
the start, so the front receives a frozen dataclass with the fields of `FrontSettings` and does not load that library.
"""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from updraft.service.addresses import parse_tcp_address

if TYPE_CHECKING:
    from updraft_server.settings import FrontSettings

FRONT_SETTINGS_VARIABLE = "UPDRAFT_FRONT_SETTINGS"
ARTIFACTS_VARIABLE = "UPDRAFT_FRONT_ARTIFACTS"
NEIGHBOURS_TOKEN_VARIABLE = "UPDRAFT_FRONT_NEIGHBOURS_TOKEN"  # noqa: S105 - a file's name

_ADDRESSES = {"listen_address": "listen", "admin_address": "admin_listen", "metrics_address": "metrics_listen"}


def hand_down(settings: "FrontSettings") -> str:
    """Return checked settings as text for the front's environment. The text contains paths of secrets, no secrets."""
    paths = [name for name in type(settings).model_fields if isinstance(getattr(settings, name), Path)]
    return json.dumps({"values": settings.model_dump(mode="json"), "paths": paths})


def take_over(text: str) -> "FrontSettings":
    """Return the settings that `hand_down` has written."""
    handed = json.loads(text)
    # JSON has no tuples.
    values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in handed["values"].items()}
    values.update({name: Path(values[name]) for name in handed["paths"]})
    for name, source in _ADDRESSES.items():
        values[name] = parse_tcp_address(values[source]) if values[source] else None
    frozen = dataclasses.make_dataclass("FrontSettings", values, frozen=True)
    return cast("FrontSettings", frozen(**values))
